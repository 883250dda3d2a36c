"""No framework: a plain loop over the clients."""

from __future__ import annotations

import random

import torch
from torch.nn.functional import cross_entropy
from work import Job, Meter, parts_of

job, meter = Job.read(), Meter()
network, parts = job.network(), parts_of(job)
x = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
for _ in range(job.rounds):
    mean = torch.zeros_like(x)
    for client in random.sample(range(job.clients), job.cohort):
        torch.nn.utils.vector_to_parameters(x.clone(), network.parameters())
        optimizer = torch.optim.SGD(network.parameters(), job.rate)
        images, labels = parts[client]
        for _ in range(job.epochs):
            for batch in torch.randperm(len(labels)).split(job.batch):
                optimizer.zero_grad()
                cross_entropy(network(images[batch]), labels[batch]).backward()
                optimizer.step()
        mean += torch.nn.utils.parameters_to_vector(network.parameters()).detach() / job.cohort
    x = mean
    meter.lap()
torch.nn.utils.vector_to_parameters(x, network.parameters())
meter.report(torch.__version__, job.accuracy(network))
