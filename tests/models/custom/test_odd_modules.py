"""Networks of unusual modules: each trains as it computes, or is one sentence before the run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from own_networks import Case, Items, task
from task_contract import bind
from torch import Tensor, nn

from seedbus.models import DataError

pytestmark = pytest.mark.usefixtures("one_thread")
FOUR = ((4,),)


class Keeping(nn.Linear):
    """Computes with what it made of its weights in its first call."""

    kept: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = self.weight.detach() * 2
        return inputs @ self.kept


class Averaging(nn.Linear):
    """Changes a buffer in each pass."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.register_buffer("average", torch.zeros(4))

    def forward(self, inputs: Tensor) -> Tensor:
        self.average.lerp_(inputs.mean(0), 0.1)
        return super().forward(inputs - self.average)


def exported() -> nn.Module:
    sizes = ({0: torch.export.Dim.DYNAMIC},)
    return torch.export.export(nn.Sequential(nn.Linear(4, 4)), (torch.rand(3, 4),), dynamic_shapes=sizes).module()


def quantised(factor: float = 1.0) -> nn.Module:
    """Return a layer in 8 bits and one in float32."""
    layer = nn.Linear(4, 4)
    layer.weight.data.fill_(factor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to give them up
        quantise: Any = torch.ao.quantization.quantize_dynamic
        return nn.Sequential(quantise(nn.Sequential(layer)), nn.Linear(4, 4))


MISTAKES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "lazy": (lambda: nn.LazyLinear(4), r"without a shape yet: layer\.weight; expected .* one forward pass before"),
    "a buffer": (Averaging, r"found a forward pass that changes parameters or buffers; expected one that changes neit"),
    "kept weights": (
        lambda: Keeping(4, 4),
        r"found outputs of .* that depend on an earlier call, as if it kept what i",
    ),
    "exported": (exported, r"with a program that torch\.export made.*; expected the network that was exported$"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize(("build", "told"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_module_that_cannot_be_trained_is_one_sentence(build: Any, told: str) -> None:
    with pytest.raises(DataError, match=rf"^task\.network: .*{told}"):
        bind(task(Case(build, FOUR)))


def test_layers_that_each_call_returns_again_are_no_mistake() -> None:
    layer = nn.Linear(4, 4)
    problem = bind(task(Case(lambda: nn.Sequential(layer, nn.Linear(4, 4)), FOUR)))
    assert problem.objective(0, 0).loss(0) > 0


def test_a_batch_of_one_that_batch_norm_refuses_names_the_ways_out() -> None:
    case = Case(lambda: nn.BatchNorm1d(4, track_running_stats=False), FOUR)
    ways = (
        r"expected batches of two samples or more, or .*GroupNorm, LayerNorm, or BatchNorm .*task\.batch_norm: frozen"
    )
    problem = bind(task(case, test=Items(case, 129, 2)))  # an evaluation takes 128 samples at a time
    with pytest.raises(DataError, match=ways):
        problem.evaluate(problem.x0(), "test")
    with pytest.raises(DataError, match=ways):
        bind(task(case, batch_size=1))


def test_a_scripted_network_trains_as_it_is_and_inside_of_another() -> None:
    def scripted() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.script(nn.Sequential(nn.Linear(4, 2), nn.Tanh()))

    def plain() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 2), nn.Tanh())

    case = Case(plain, FOUR)
    losses = []
    for network in (plain, scripted, lambda: nn.Sequential(scripted())):
        objective = bind(task(case, network=network)).objective(0, 0)
        losses.append((objective.loss(0), objective.gradient(0).tobytes()))
    assert losses[0] == losses[1] == losses[2]


def test_weights_of_quantised_layers_are_part_of_the_identity() -> None:
    one, again, other = (bind(task(Case(lambda f=f: quantised(f), FOUR))) for f in (1.0, 1.0, 2.0))  # type: ignore[misc]
    assert (one.x0() == other.x0()).all()
    assert one.identity() == again.identity() != other.identity()
