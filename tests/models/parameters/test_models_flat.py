"""The flat parameter vector: the module's views into it, its initial values, and the batches of an evaluation."""

from __future__ import annotations

import hashlib
import math
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

from seedbus.models.data.batches import batch
from seedbus.models.generators import generator
from seedbus.models.images import networks
from seedbus.models.parameters.flat import FlatModule, initial_values
from seedbus.models.tasks.cifar import Cifar10, Cifar100
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.femnist import Femnist
from seedbus.models.tasks.mnist import FashionMnist, Mnist

NETWORKS = {
    "mnist-cnn": (networks.mnist_cnn, 28, 28_938),
    "fashion-cnn": (networks.fashion_cnn, 28, 1_206_590),
    "digits-cnn": (networks.digits_cnn, 8, 1_898),
    "softmax": (lambda: networks.softmax(784, 10), 28, 7_850),
}
every_network = pytest.mark.parametrize(("build", "side", "count"), NETWORKS.values(), ids=NETWORKS)


def images(side: int, count: int = 4) -> torch.Tensor:
    return torch.from_numpy(generator("images").random((count, side, side, 1), dtype=np.float32)).permute(0, 3, 1, 2)


@every_network
def test_networks_have_the_papers_numbers_of_parameters(build: Any, side: Any, count: Any) -> None:
    flat = FlatModule(build())
    assert flat.point.size == count and flat.point.dtype == np.float32 and flat.point.flags.c_contiguous
    assert initial_values(flat.module, generator("any")).size == count


@pytest.mark.parametrize("kind", [Mnist, FashionMnist, Femnist, Cifar10, Cifar100, Digits])
def test_the_schema_knows_the_dimension_of_every_network(kind: Any) -> None:
    for model in get_args(kind.model_fields["model"].annotation):
        task = kind(model=model)
        assert task.dimension == sum(p.numel() for p in task.network().parameters()), model


@every_network
def test_parameters_are_views_that_tile_the_vector_in_order(build: Any, side: Any, count: Any) -> None:
    flat = FlatModule(build())
    address = flat.point.ctypes.data
    for parameter in flat.module.parameters():
        assert parameter.data_ptr() == address
        if parameter.ndim == 4:
            assert parameter.is_contiguous(memory_format=torch.channels_last)
        address += 4 * parameter.numel()
    assert address == flat.point.ctypes.data + flat.point.nbytes


@every_network
def test_flattening_keeps_what_the_network_computes(build: Any, side: Any, count: Any) -> None:
    module = build()
    with torch.inference_mode():
        before = module(images(side))
        after = FlatModule(module).module(images(side))
    assert torch.allclose(before, after, atol=1e-5)


def test_writing_to_the_point_changes_the_output_without_a_copy() -> None:
    flat = FlatModule(networks.digits_cnn())
    with torch.inference_mode():
        before = flat.module(images(8))
        flat.point[-10:] += 1  # the last layer's biases
        assert torch.allclose(flat.module(images(8)), before + 1)
        flat.point[:] = 0
        assert not flat.module(images(8)).any()


@every_network
def test_named_tensors_have_the_modules_shapes_and_reload_to_the_same_output(build: Any, side: Any, count: Any) -> None:
    flat = FlatModule(build())
    flat.point[:] = initial_values(flat.module, generator("x"))
    tensors = flat.tensors()
    fresh = build()
    assert {name: t.shape for name, t in tensors.items()} == {n: tuple(t.shape) for n, t in fresh.state_dict().items()}
    fresh.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in tensors.items()})
    again = FlatModule(fresh)
    assert again.point.tobytes() == flat.point.tobytes()
    with torch.inference_mode():
        assert torch.equal(again.module(images(side)), flat.module(images(side)))


@every_network
def test_initial_values_are_uniform_within_one_over_the_root_of_fan_in(build: Any, side: Any, count: Any) -> None:
    flat = FlatModule(build())
    flat.point[:] = initial_values(flat.module, generator("x"))
    for layer in flat.module.children():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            assert bound * 0.8 < float(layer.weight.abs().max()) <= bound
            assert layer.bias is not None
            assert float(layer.bias.abs().max()) <= bound
            assert float(layer.weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.15)


def test_initial_values_are_what_they_were_in_earlier_versions() -> None:
    x0 = initial_values(networks.mnist_cnn(), generator("x0", "mnist", 0))
    assert hashlib.blake2b(x0.astype("<f4").tobytes(), digest_size=8).hexdigest() == "9355584e4645d809"


def test_initial_values_need_no_torch_generator() -> None:
    state = torch.get_rng_state()
    module = networks.digits_cnn()
    torch.manual_seed(9)
    first = initial_values(module, generator("x"))
    torch.manual_seed(10)
    assert first.tobytes() == initial_values(networks.digits_cnn(), generator("x")).tobytes()
    torch.set_rng_state(state)


def test_a_norm_starts_as_the_identity_and_a_tied_parameter_counts_once() -> None:
    module: Any = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3))
    module[2].weight = module[0].weight
    flat = FlatModule(module)
    flat.point[:] = initial_values(module, generator("x"))
    assert flat.point.size == 9 + 3 + 6 + 3
    assert module[1].weight.tolist() == [1, 1, 1] and module[1].bias.tolist() == [0, 0, 0]
    assert module[2].weight.data_ptr() == module[0].weight.data_ptr() == flat.point.ctypes.data


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.BatchNorm2d(2), "BatchNorm2d: running statistics .*GroupNorm"),
        (nn.Linear(2, 2).double(), "not float32: weight, bias"),
    ],
)
def test_modules_that_cannot_be_one_float32_vector_are_refused(module: Any, sentence: Any) -> None:
    with pytest.raises(TypeError, match=sentence):
        FlatModule(module)


def test_a_layer_whose_initial_values_are_not_defined_is_refused() -> None:
    with pytest.raises(TypeError, match=r"PReLU.weight has no initial values defined"):
        initial_values(nn.PReLU(), generator("x"))


# Batches


def test_a_batch_is_decided_by_its_four_numbers_and_has_no_sample_twice() -> None:
    samples = np.arange(1_000, 1_100)
    key = {"seed": 1, "client": 2, "round": 3, "step": 4}
    drawn = batch(samples, 32, **key)
    assert np.array_equal(drawn, batch(samples, 32, **key))
    assert np.unique(drawn).size == 32 and np.isin(drawn, samples).all()
    for name in key:
        assert not np.array_equal(drawn, batch(samples, 32, **{**key, name: key[name] + 1}))
    swapped = batch(samples, 32, **{**key, "client": 3, "round": 2})
    assert not np.array_equal(drawn, swapped)


def test_streams_of_numbers_that_run_together_are_apart() -> None:
    assert generator("a", 1, 23).random() != generator("a", 12, 3).random() != generator("a1", 2, 3).random()
    assert generator("a", 2**64 + 1).random() != generator("a", 1).random()


def test_every_sample_of_a_client_is_drawn_sooner_or_later() -> None:
    samples = np.arange(40)
    drawn = [batch(samples, 8, seed=0, client=0, round=round, step=0) for round in range(100)]
    counts = np.bincount(np.concatenate(drawn), minlength=40)
    assert counts.min() > 5 and counts.max() < 40


def test_a_batch_is_what_it_was_in_earlier_versions() -> None:
    assert batch(np.arange(100), 5, seed=1, client=2, round=3, step=4).tolist() == [62, 74, 10, 36, 67]


@pytest.mark.parametrize(("height", "width"), [(28, 28), (7, 7), (5, 8), (2, 6)])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_halving_has_the_bits_of_torchs_pooling(height: int, width: int, order: torch.memory_format) -> None:
    values = generator("pool").integers(-3, 4, (2, 3, height, width)).astype(np.float32)  # with ties
    values[0, 0, height // 2, 0], values[1, 2, 0, width // 2], values[1, 0, 0, 0] = np.nan, np.inf, -np.inf
    tensor = torch.from_numpy(values).to(memory_format=order)
    with torch.inference_mode():
        halved, expected = networks.MaxPool2x2()(tensor), nn.functional.max_pool2d(tensor, 2)
    assert halved.shape == expected.shape
    assert halved.numpy().tobytes() == expected.numpy().tobytes()
    assert halved.is_contiguous(memory_format=order) or halved.numel() == 0


def test_halving_gives_a_gradient_to_one_of_equal_values() -> None:
    inputs = torch.zeros(1, 1, 2, 2, requires_grad=True)
    networks.MaxPool2x2()(inputs).sum().backward()
    assert inputs.grad is not None and sorted(inputs.grad.flatten().tolist()) == [0, 0, 0, 1]
