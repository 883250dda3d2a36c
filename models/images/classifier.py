"""The classifier under attack: a CNN of 28,938 parameters, trained once with gradients and then kept in the cache.

It is trained by stochastic gradient descent with momentum on one thread; x₀ and the batches are drawn by key, so all
processes of a machine get the same bits. On another machine the last bit of a sum may differ, and training amplifies
the difference: to run one scenario on several machines, copy the folder `prepared/` of the cache. **Ours**: the network
and its training; FedZO attacks a network for CIFAR-10 with an accuracy of about 82.3%.

The invariant: a trained classifier is used only with the files and settings that it was trained on.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from seedbus.models.data.image_files import image_paths
from seedbus.models.data.prepared import Arrays, prepared
from seedbus.models.data.samples import Images
from seedbus.models.device import HOST, on_device
from seedbus.models.generators import generator
from seedbus.models.images import networks
from seedbus.models.images.mnist_task import MnistTask
from seedbus.models.parameters.flat import FlatModule, initial_values

_BATCH_SIZE = 64
_LEARNING_RATE = 0.05
_MOMENTUM = 0.9
_EVALUATION_BATCH = 500  # images of a forward pass


class Classifier(NamedTuple):
    """A trained network, and which images it classifies correctly."""

    module: nn.Module  # normalised images [b, 1, 28, 28] → logits [b, 10]
    right: dict[str, NDArray[np.bool_]]  # for the splits "train" and "test", [n] each


def classifier(task: MnistTask, steps: int) -> Classifier:
    """Return the trained CNN, from the cache if it is there.

    Args:
        task: the task whose training images, validation included, it learns.
        steps: number of training steps.

    Raises:
        DataError: the images are missing or damaged.
    """
    paths = [path for split in ("train", "test") for path in image_paths(task.name, task.hub, split)]
    recipe = f"classifier 1 {task.name} {steps}"
    arrays = prepared(recipe, paths, {"point": 1, "train": 1, "test": 1}, lambda: _trained(task, steps))
    flat = FlatModule(networks.mnist_cnn())
    flat.point[:] = np.ascontiguousarray(arrays["point"]).view("<f4")
    return Classifier(flat.module, {split: arrays[split].astype(bool) for split in ("train", "test")})


def _trained(task: MnistTask, steps: int) -> Arrays:
    sys.stderr.write(f"training the classifier of {task.name} that will be attacked, once: {steps} steps\n")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the order of sums depends on the number of threads
    try:
        train, test = task.load()
        with on_device(HOST):  # wherever this process computes: all that share the cache find the same classifier
            flat = FlatModule(networks.mnist_cnn())
        _train(flat, task, train, steps)
        right = {"train": _is_right(flat.module, task, train), "test": _is_right(flat.module, task, test)}
    finally:
        torch.set_num_threads(threads)
    return {"point": flat.point.astype("<f4").view(np.uint8)} | right


def _train(flat: FlatModule, task: MnistTask, images: Images, steps: int) -> None:
    flat.point[:] = initial_values(flat.module, generator("classifier x0", task.name))
    parameters = list(flat.module.requires_grad_(True).parameters())
    momenta = [torch.zeros_like(parameter) for parameter in parameters]
    for step in range(steps):
        drawn = generator("classifier batch", task.name, step).integers(0, images.labels.size, _BATCH_SIZE)
        inputs = torch.from_numpy(task.inputs(images.pick(drawn))).permute(0, 3, 1, 2)
        loss = cross_entropy(flat.module(inputs), torch.from_numpy(images.labels[drawn]))
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, momentum, gradient in zip(parameters, momenta, gradients, strict=True):
                momentum.mul_(_MOMENTUM).add_(gradient)
                parameter.sub_(momentum.mul(_LEARNING_RATE))
    flat.module.requires_grad_(False)


def _is_right(module: nn.Module, task: MnistTask, images: Images) -> NDArray[np.uint8]:
    """Return 1 for every image that the network classifies correctly, else 0; [n]."""
    batches = []
    with torch.inference_mode():
        for start in range(0, images.labels.size, _EVALUATION_BATCH):
            indices = np.arange(start, min(start + _EVALUATION_BATCH, images.labels.size))
            inputs = torch.from_numpy(task.inputs(images.pick(indices))).permute(0, 3, 1, 2)
            batches.append(module(inputs).argmax(dim=1).numpy() == images.labels[indices])
    return np.concatenate(batches).astype(np.uint8)
