"""The classifier that is attacked: a CNN of 28,938 parameters, trained once with gradients and then kept in the cache.

Stochastic gradient descent with momentum, from x₀ and on batches drawn by key, on one thread: the same bits in every
process of a machine. **Ours**: the network and how it is trained; FedZO attacks a network for CIFAR-10 that is right
about 82.3 % of images. On another machine a last bit may differ, and then training does: who runs one scenario on
several machines should copy the folder `prepared/` of the cache.

The invariant: what was trained is used only for the files and settings that it was trained on.
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
from seedbus.models.images import networks
from seedbus.models.images.mnist_task import MnistTask
from seedbus.models.parameters.flat import FlatModule, initial_values
from seedbus.models.streams import stream

_BATCH, _RATE, _MOMENTUM = 64, 0.05, 0.9
_AT_ONCE = 500  # images of a forward pass


class Classifier(NamedTuple):
    """A trained network, and of which images it is right."""

    module: nn.Module  # normalised images [b, 1, 28, 28] → logits [b, 10]
    right: dict[str, NDArray[np.bool_]]  # by split, "train" and "test": [n] each


def classifier(task: MnistTask, steps: int) -> Classifier:
    """The CNN after so many steps on the task's training images, validation included. Raises `DataError`."""
    paths = [path for split in ("train", "test") for path in image_paths(task.name, task.hub, split)]
    recipe = f"classifier 1 {task.name} {steps}"
    arrays = prepared(recipe, paths, {"point": 1, "train": 1, "test": 1}, lambda: _trained(task, steps))
    flat = FlatModule(networks.mnist_cnn())
    flat.point[:] = np.ascontiguousarray(arrays["point"]).view("<f4")
    return Classifier(flat.module, {split: arrays[split].astype(bool) for split in ("train", "test")})


def _trained(task: MnistTask, steps: int) -> Arrays:
    sys.stderr.write(f"training the classifier of {task.name} that will be attacked, once: {steps} steps\n")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would add up in another order
    try:
        train, test = task.load()
        flat = FlatModule(networks.mnist_cnn())
        _descend(flat, task, train, steps)
        right = {"train": _right(flat.module, task, train), "test": _right(flat.module, task, test)}
    finally:
        torch.set_num_threads(threads)
    return {"point": flat.point.astype("<f4").view(np.uint8)} | right


def _descend(flat: FlatModule, task: MnistTask, images: Images, steps: int) -> None:
    flat.point[:] = initial_values(flat.module, stream("classifier x0", task.name))
    parameters = list(flat.module.requires_grad_(True).parameters())
    momenta = [torch.zeros_like(parameter) for parameter in parameters]
    for step in range(steps):
        drawn = stream("classifier batch", task.name, step).integers(0, images.labels.size, _BATCH)
        inputs = torch.from_numpy(task.inputs(images.pick(drawn))).permute(0, 3, 1, 2)
        loss = cross_entropy(flat.module(inputs), torch.from_numpy(images.labels[drawn]))
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, momentum, gradient in zip(parameters, momenta, gradients, strict=True):
                momentum.mul_(_MOMENTUM).add_(gradient)
                parameter.sub_(momentum.mul(_RATE))
    flat.module.requires_grad_(False)


def _right(module: nn.Module, task: MnistTask, images: Images) -> NDArray[np.uint8]:
    """1 for every image whose class the network tells, else 0; [n]."""
    found = []
    with torch.inference_mode():
        for start in range(0, images.labels.size, _AT_ONCE):
            indices = np.arange(start, min(start + _AT_ONCE, images.labels.size))
            inputs = torch.from_numpy(task.inputs(images.pick(indices))).permute(0, 3, 1, 2)
            found.append(module(inputs).argmax(dim=1).numpy() == images.labels[indices])
    return np.concatenate(found).astype(np.uint8)
