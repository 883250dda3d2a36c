"""Flower's simulation with Ray, one client at a time: https://flower.ai/docs/framework, "Quickstart PyTorch"."""

from __future__ import annotations

import os

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

from importlib.metadata import version

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from work import Job, Meter, parts_of

job, client, server = Job.read(), ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    network = job.network()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    own = TensorDataset(*parts_of(job)[int(context.node_config["partition-id"])])
    loader, optimizer = DataLoader(own, job.batch, shuffle=True), torch.optim.SGD(network.parameters(), job.rate)
    for _ in range(job.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            cross_entropy(network(images), labels).backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(own)})
    return Message(
        content=RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics}), reply_to=message
    )


@server.main()
def main(grid: Grid, context: Context) -> None:
    def closed(round: int, arrays: ArrayRecord) -> None:
        if round:  # before the first round the clients start
            meter.lap()

    network, strategy = job.network(), FedAvg(job.share, 0.0, job.cohort, 0, job.clients)
    result = strategy.start(grid, ArrayRecord(network.state_dict()), job.rounds, evaluate_fn=closed)
    network.load_state_dict(result.arrays.to_torch_state_dict())
    meter.report(version("flwr"), job.accuracy(network))


if __name__ == "__main__":
    meter = Meter()
    run_simulation(
        server,
        client,
        job.clients,
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 1}},
    )
