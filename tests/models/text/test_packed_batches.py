"""Batches without padding: their losses are those of padded ones, and no layer computes what the loss does not need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_language import bind, write_model
from test_language_families import FAMILIES, write_family
from worlds import outcome

from seedbus.models import DataError
from seedbus.models.parameters.products import product
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.text.tokens import Pair, collate, layout
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.transports.placement import Placement

PACKED = {"batching": "packed"}
REFUSED = ("gemma2", "gpt2", "bloom")
KINDS = [{"kind": "full"}, {"kind": "last-blocks"}, {"kind": "last-blocks", "blocks": 2}, {"kind": "lora"}]

pytestmark = [pytest.mark.usefixtures("one_thread", "opt"), pytest.mark.slow]


def agree(padded: Any, packed: Any) -> None:
    """Check losses, gradients and evaluations at one point, and the packed ones against those layer by layer."""
    x = (packed.x0() * np.float32(1.01)).astype(np.float32)
    padded.point[:] = packed.point[:] = x
    theirs, ours = padded.objective(0, 0), packed.objective(0, 0)
    assert ours.loss(0) == pytest.approx(theirs.loss(0), rel=1e-6)
    gradient, expected = ours.gradient(0), theirs.gradient(0)
    assert np.linalg.norm(gradient - expected) < 1e-5 * np.linalg.norm(expected)
    measured = packed.evaluate(x, "test")
    assert measured == pytest.approx(padded.evaluate(x, "test"), rel=1e-6)
    light = bind(packed.task)
    assert light.objective(0, 0).loss_at(0, lambda span, out: np.copyto(out, x[span])) == ours.loss(0)
    assert light.evaluate_at(lambda span, out: np.copyto(out, x[span]), "test") == measured


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in REFUSED])
@pytest.mark.parametrize("train", KINDS, ids=lambda train: "-".join(map(str, train.values())))
def test_losses_and_gradients_are_those_of_padded_batches(tmp_path: Path, texts: Path, name: str, train: Any) -> None:
    fields: dict[str, Any] = {"model": str(write_family(tmp_path, name)), "data": str(texts / "sst2"), "batch_size": 4}
    agree(*(bind(LanguageModel.model_validate(fields | {"train": train} | more)) for more in ({}, PACKED)))


def test_a_window_of_attention_is_kept(tmp_path: Path, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "mistral", ("MistralConfig", {"sliding_window": 4}, 0))
    fields: dict[str, Any] = {"model": str(write_family(tmp_path, "mistral")), "data": str(texts / "sst2")}
    agree(*(bind(LanguageModel.model_validate(fields | more)) for more in ({}, PACKED)))


@pytest.mark.parametrize(("dataset", "loss"), [("sst2", "options"), ("cb", "options"), ("squad", "answer")])
def test_answers_of_any_length_are_scored(make: Any, dataset: str, loss: str) -> None:
    """Those of sst2 are one token each, which are compared without the rest of the vocabulary."""
    padded, packed = (bind(make(dataset, loss=loss, validation=0, **more)) for more in ({}, PACKED))
    batch = packed.training_batch(np.arange(2))[0]
    assert (batch.packed.columns is not None) == (dataset == "sst2")
    agree(padded, packed)


@pytest.mark.parametrize("train", [KINDS[0], KINDS[1]], ids=["full", "last-blocks"])
def test_layers_see_no_padding_and_the_last_ones_only_what_is_scored(make: Any, train: Any) -> None:
    problem = bind(make(train=train, batch_size=6, loss="options", **PACKED))
    problem.point[:] = problem.x0()
    (_, (batch, _)), *_ = problem.objective(0, 0).parts(0)
    seen: dict[str, tuple[int, int]] = {}
    for name, layer in problem.network._model.named_modules():
        if name.endswith("fc1") or name == "lm_head":
            layer.register_forward_hook(
                lambda _, args, out, name=name: seen.update({name: (out.numel() // out.shape[-1], out.shape[-1])})
            )
    problem.objective(0, 0).loss(0)
    rows, tokens = len(batch.ids), int(batch.widths.sum())
    assert tokens < batch.ids.numel(), "there is padding to leave out"
    first = None if train["kind"] == "last-blocks" else (tokens, 32)
    assert seen.pop("model.decoder.layers.0.fc1", None) == first
    assert seen == {"model.decoder.layers.1.fc1": (rows, 32), "lm_head": (rows, 2)}


def test_a_layout_holds_every_token_once_and_finds_each_answer() -> None:
    batch = collate([Pair([5, 6, 8], [7]), Pair([5, 6, 8], [9]), Pair([5], [6, 9, 4]), Pair([1, 2, 3], [4])])
    packed = layout(batch)
    assert packed.ids.tolist() == [[5, 6, 8, 1, 2, 3, 5, 6, 9]] and packed.positions.tolist() == [[0, 1, 2] * 3]
    assert packed.groups == ((2, 3, 1), (1, 3, 3)) and packed.scored.tolist() == [2, 5, 6, 7, 8]
    assert packed.scored[packed.places].tolist() == [2, 2, 6, 7, 8, 5] and packed.columns is None
    assert layout(collate([Pair([5, 6], [7]), Pair([5, 6], [9])]), 2).columns.tolist() == [7, 9]  # type: ignore[union-attr]
    assert layout(collate([Pair([5, 6], [7]), Pair([5, 8], [9])]), 2).columns is None, "prompts differ"


def test_a_product_is_right_and_has_the_same_bits_with_and_without_a_gradient() -> None:
    torch.manual_seed(0)
    inputs, weight, bias = torch.randn(1, 37, 24), torch.randn(20, 24, requires_grad=True), torch.randn(20)
    exact = inputs.double() @ weight.detach().double().T + bias.double()
    differentiable = product(inputs, weight, bias)
    with torch.inference_mode():
        plain = product(inputs, weight, bias)
    assert differentiable.requires_grad and torch.equal(plain, differentiable.detach())
    assert float((plain - exact).norm() / exact.norm()) < 1e-6


def slope(problem: Any, direction: Any) -> float:
    objective = problem.objective(0, 0)
    objective.point[:], objective.tangent[:] = problem.x0(), direction
    return float(objective.slope(0))


@pytest.mark.parametrize("train", KINDS, ids=lambda train: "-".join(map(str, train.values())))
def test_a_forward_derivative_is_that_of_backpropagation_and_of_padded_batches(
    tmp_path: Path, texts: Path, train: Any
) -> None:
    fields: dict[str, Any] = {"model": str(write_family(tmp_path, "llama")), "data": str(texts / "sst2")}
    padded, packed = (bind(LanguageModel.model_validate(fields | {"train": train} | more)) for more in ({}, PACKED))
    direction = np.random.default_rng(0).standard_normal(packed.dimension, np.float32)
    packed.check_slopes()
    found, objective = slope(packed, direction), packed.objective(0, 0)
    objective.point[:] = packed.x0()
    gradient = objective.gradient(0).astype(np.float64)
    small = 1e-5 * float(np.linalg.norm(gradient) * np.linalg.norm(direction))
    assert found == pytest.approx(float(gradient @ direction), abs=small)
    assert found == pytest.approx(slope(padded, direction), abs=small)
    assert abs(found) > 100 * small


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_takes_no_packed_batch_says_so(tmp_path: Path, texts: Path, name: str) -> None:
    fields = {"model": str(write_family(tmp_path, name)), "data": str(texts / "sst2")} | PACKED
    with pytest.raises(DataError, match=r"^task\.batching: found packed, and \w+ForCausalLM|\w+LMHeadModel") as raised:
        bind(LanguageModel.model_validate(fields))
    assert str(raised.value).endswith("; expected padded")


def test_a_prefix_is_not_packed(make: Any) -> None:
    with pytest.raises(ValueError, match="batching is packed, and train is prefix, which begins every row; expected"):
        make(train={"kind": "prefix"}, **PACKED)


DECOMFL = {"name": "decomfl", "perturbations": 2, "learning_rate": 0.01}


@pytest.mark.parametrize("train", [KINDS[0], KINDS[1]], ids=["full", "last-blocks"])
@pytest.mark.usefixtures("warm_workers")
def test_a_run_has_the_same_bits_in_worker_processes_and_layer_by_layer(
    tmp_path: Path, texts: Path, train: Any
) -> None:
    task = {"model": str(write_model(tmp_path / "opt")), "data": str(texts / "sst2"), "batch_size": 4, "train": train}

    def scenario(revert: str) -> Any:
        document = {
            "name": "packed",
            "task": {"name": "language-model", "validation": 0} | task | PACKED,
            "algorithm": DECOMFL | {"revert": revert},
            "participation": {"clients": 4, "cohort": 2},
            "stop": {"rounds": 3},
            "verify": True,
        }
        return validate(document, "a test")

    single = run(scenario("copy"), tmp_path / "memory")
    assert outcome(single) == outcome(run(scenario("copy"), tmp_path / "tcp", placement=Placement("tcp", 2)))
    assert run(scenario("light"), tmp_path / "light").digest == single.digest
    assert single.metrics["loss"].nunique() > 1
