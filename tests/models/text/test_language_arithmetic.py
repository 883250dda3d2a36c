"""The bits of language models: frozen weights in 8 and 4 of them, and forward passes in 16."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from devices import DEVICE, IS_PROCESSOR
from small_language import bind

from seedbus.agents.client.evaluator import measured, write_span
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.models import DataError
from seedbus.models.device import on_device, placed_beside
from seedbus.models.parameters.storage import quantise_frozen

pytestmark = [pytest.mark.usefixtures("one_thread", "opt"), pytest.mark.slow]
LORA: dict[str, Any] = {"train": {"kind": "lora"}, "validation": 0}


def stored_bytes(problem: Any, *, of: str) -> int:
    """Return the bytes of all frozen weights, and of their scales, in the layers whose name contains a text."""
    module = problem.trained.module
    tensors = [*module.named_buffers(), *((n, p) for n, p in module.named_parameters() if not p.requires_grad)]
    kept = [t for n, t in tensors if of in n and "bias" not in n and not n.endswith(".code")]
    return sum(t.numel() * t.element_size() for t in kept)


@pytest.mark.parametrize(("dtype", "bits", "error"), [("int8", 8, 0.01), ("nf4", 4, 0.13)])
def test_frozen_layers_are_stored_in_few_bits_and_widened_to_near_what_they_were(
    make: Any, dtype: str, bits: int, error: float
) -> None:
    pytest.importorskip("bitsandbytes", reason="quantised weights need bitsandbytes")
    whole, small = bind(make(**LORA)), bind(make(**LORA, dtype=dtype))
    layers = [each for name, each in whole.trained.module.named_modules() if name.endswith("fc1")]
    others = [each for name, each in small.trained.module.named_modules() if name.endswith("fc1")]
    for layer, other in zip(layers, others, strict=True):
        assert other.weight.dtype == torch.float32 and not torch.equal(layer.weight, other.weight)
        assert float((layer.weight - other.weight).norm() / layer.weight.norm()) < error
    count = sum(layer.weight.numel() for layer in layers)
    assert stored_bytes(small, of="fc1") == count * bits // 8 + 4 * count // 64
    assert stored_bytes(small, of="embed_tokens") == stored_bytes(whole, of="embed_tokens") // 2
    losses = [problem.evaluate(problem.x0(), "test")["loss"] for problem in (whole, small)]
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=20 * error)


def blocks(weight: torch.Tensor) -> list[torch.Tensor]:
    """Return the blocks that have a scale each."""
    return list(torch.split(weight.reshape(-1), 64))


@pytest.mark.parametrize(("dtype", "rows", "columns"), [("nf4", 48, 128), ("nf4", 7, 20), ("int8", 7, 20)])
def test_a_quantised_layer_has_the_nearest_value_that_its_block_of_64_can_stand_for(
    dtype: str, rows: int, columns: int
) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes", reason="quantised weights need bitsandbytes")
    torch.manual_seed(1)
    layer, other = torch.nn.Linear(columns, rows), torch.nn.Linear(rows, 2)
    module = torch.nn.Sequential(layer, other).requires_grad_(False)
    weight = layer.weight.detach().clone()
    quantise_frozen(module, dtype, leave=[other])
    assert other.weight.is_floating_point() and not torch.nn.utils.parametrize.is_parametrized(other)
    functional = bitsandbytes.functional
    code = functional.get_4bit_type("nf4", device="cpu") if dtype == "nf4" else functional.create_linear_map(True, 8)
    for block, found in zip(blocks(weight), blocks(layer.weight), strict=True):
        nearest = (block[:, None] - code * block.abs().max()).abs().amin(dim=1)
        slack = 0.01 * code.diff().amax() * block.abs().max()  # bitsandbytes rounds what lies midway as it likes
        assert ((found - block).abs() <= nearest + slack).all()
    if columns == 128:
        made: dict[str, Any] = {"compute_dtype": torch.float32, "compress_statistics": False, "quant_type": "nf4"}
        theirs = bitsandbytes.nn.Linear4bit(columns, rows, **made)
        theirs.load_state_dict({"weight": weight, "bias": layer.bias.detach()})
        inputs = torch.linspace(-1, 1, 3 * columns).view(3, -1)
        with torch.inference_mode():
            assert torch.equal(layer(inputs), theirs.to("cpu")(inputs))


def test_the_scales_of_quantised_weights_are_part_of_what_a_process_proves(make: Any) -> None:
    pytest.importorskip("bitsandbytes", reason="quantised weights need bitsandbytes")
    one, other = bind(make(**LORA, dtype="nf4")), bind(make(**LORA, dtype="nf4"))
    assert one.identity() == other.identity()
    next(t for n, t in other.trained.module.named_buffers() if n.endswith("scales"))[0] *= 2
    assert one.identity() != other.identity()


def test_without_the_library_a_sentence_says_what_to_install(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(
        DataError, match=r"^task\.dtype: found int8, and no package bitsandbytes .*seedbus\[quantized\]"
    ):
        bind(make(**LORA, dtype="int8"))


WAYS: dict[str, dict[str, Any]] = {
    "full": {"compute_dtype": "bfloat16"},
    "lora": LORA | {"compute_dtype": "bfloat16", "dtype": "bfloat16"},
    "nf4": LORA | {"compute_dtype": "bfloat16", "dtype": "nf4"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_forward_pass_in_16_bits_has_the_same_bits_with_and_without_a_point_and_on_tensors(
    make: Any, way: str
) -> None:
    if way == "nf4":
        pytest.importorskip("bitsandbytes", reason="quantised weights need bitsandbytes")
    task = make(**{"validation": 0} | WAYS[way])
    exact = bind(task.model_copy(update={"compute_dtype": "float32"}))
    half, layerwise = bind(task), bind(task)
    x = half.x0() + np.float32(1e-3)
    for problem in (half, exact):
        problem.point[:] = x
    loss = half.objective(0, 0).loss(0)
    assert loss != exact.objective(0, 0).loss(0) == pytest.approx(loss, rel=0.05)
    assert layerwise.objective(0, 0).loss_at(0, lambda span, out: np.copyto(out, x[span])) == loss
    with on_device(DEVICE):
        tensors = bind(task)
        np.copyto(tensors.point, x)
        assert tensors.objective(0, 0).loss(0) == (loss if IS_PROCESSOR else pytest.approx(loss, rel=0.02))
    gradients = [problem.objective(0, 0).gradient(0).copy() for problem in (half, exact)]
    assert gradients[0].dtype == np.float32
    assert np.linalg.norm(gradients[0] - gradients[1]) < 0.1 * np.linalg.norm(gradients[1])


@pytest.mark.parametrize("arithmetic", ["bfloat16", "integer"])
@pytest.mark.parametrize("dataset", ["sst2", "squad"])
def test_an_evaluation_with_revert_light_widens_one_layer_after_the_other_to_the_metrics_of_a_widened_copy(
    make: Any, dataset: str, arithmetic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where answers are generated, a copy is made after all: each token would take every layer."""
    light = DeComFL(revert="light", arithmetic=arithmetic)
    copying = light.model_copy(update={"revert": "copy"})
    with on_device(DEVICE):
        problem = bind(make(dataset, validation=0))
    replica = light.replica(placed_beside(problem)(problem.x0() + np.float32(1e-3)))
    expected = measured(copying, problem, replica, None, "test")
    spans: list[int] = []

    def watched(algorithm: Any, replica: Any, span: slice, out: Any) -> None:
        spans.append(out.size)
        write_span(algorithm, replica, span, out)

    monkeypatch.setattr("seedbus.agents.client.evaluator.write_span", watched)
    assert measured(light, problem, replica, None, "test") == expected
    whole, largest = problem.dimension, max(map(math.prod, problem.shapes()))
    assert max(spans) == (whole if dataset == "squad" else largest)
    assert not (copying.facts.is_widened or DeComFL(revert="light").facts.is_widened)
