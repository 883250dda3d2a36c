"""Weights that are used without calling their layer: `revert: light` gives the run of `revert: copy`, or refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from own_networks import LAYERS, Case, task
from task_contract import bind
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune
from worlds import scenario

from seedbus.models import DataError
from seedbus.models.device import on_device
from seedbus.plugin import load_plugin
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

pytestmark = pytest.mark.usefixtures("one_thread", "no_plugins")

NETWORKS = Path(__file__).resolve().parents[2] / "support" / "plugins" / "networks.py"


class Using(nn.Module):
    """Layers, and a function that uses them in its own way."""

    def __init__(self, function: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self._function = function

    def forward(self, inputs: Tensor) -> Tensor:
        return self._function(self, inputs)


class Prompt(nn.Module):
    """Returns a view of its own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4) - 0.5)

    def forward(self) -> Tensor:
        return self.weight.T


def scripted(what: Any) -> Any:
    """Return a function or module compiled by TorchScript, which torch is about to give up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(what)


def compiled(layer: Any) -> Any:
    return torch.compile(layer, backend="eager")


def product(inputs: Tensor, weight: Tensor) -> Tensor:
    return torch.relu(inputs @ weight)


def linear() -> nn.Linear:
    return nn.Linear(4, 4)


def hooked() -> nn.Module:
    """Return a layer with hooks that read its weights before and after its forward pass."""
    layer = linear()
    layer.register_forward_pre_hook(lambda layer, inputs: (inputs[0] @ layer.weight,))
    layer.register_forward_hook(lambda layer, _, outputs: outputs * layer.weight.mean())
    return layer


def in_a_list() -> nn.Module:
    network: Any = Using(lambda n, x: functional.linear(x, *n.weights), a=linear())
    network.weights = [network.a.weight, network.a.bias]
    return network  # type: ignore[no-any-return]


def pruned() -> nn.Module:
    return prune.l1_unstructured(linear(), "weight", 0.5)  # type: ignore[no-any-return, no-untyped-call]


def prompted(network: Any, inputs: Tensor) -> Tensor:
    prompt = network.prompt()
    outputs: Tensor = network.a(inputs) @ prompt  # the view is used when another layer has run
    return outputs


def unrolled(network: Any, inputs: Tensor) -> Tensor:
    for _ in range(3):
        inputs = torch.tanh(functional.linear(inputs, network.cell.weight_hh, network.cell.bias_hh))
    return inputs


def caught(network: Any, inputs: Tensor) -> Tensor:
    try:
        network.a(inputs[:, :2])
    except RuntimeError:
        inputs = network.a(inputs)
    outputs: Tensor = network.b(inputs)
    return outputs


ELSEWHERE: dict[str, Callable[[], nn.Module]] = {
    "functional": lambda: Using(lambda n, x: functional.linear(x, n.a.weight, n.a.bias), a=linear()),
    "called and used": lambda: Using(lambda n, x: n.a(x) + x @ n.a.weight.T, a=linear()),
    "forward": lambda: Using(lambda n, x: n.a.forward(x), a=linear()),
    "a view that a layer returns": lambda: Using(prompted, prompt=Prompt(), a=linear()),
    "a list": in_a_list,
    "hooks": hooked,
    "pruned": pruned,
    "stacked experts": lambda: Using(
        lambda n, x: torch.einsum("bi,eoi->bo", x, torch.stack([each.weight for each in n.experts])),
        experts=nn.ModuleList([linear() for _ in range(3)]),
    ),
    "other weights": lambda: Using(
        lambda n, x: torch.func.functional_call(n.a, {name: w * 2 for name, w in n.a.named_parameters()}, x), a=linear()
    ),
    "a comparison, which hides a NaN": lambda: Using(lambda n, x: x * (x > n.a.weight[0]), a=linear()),
    "numbers": lambda: Using(lambda n, x: x * n.a.weight.tolist()[0][0] + float(n.a.bias.sum()), a=linear()),
    "a penalty": lambda: Using(lambda n, x: n.a(x) * sum(p.square().sum() for p in n.parameters()), a=linear()),
    "by the inputs": lambda: Using(lambda n, x: x @ n.b.weight if x.mean() > 0.2 else n.a(x), a=linear(), b=linear()),
    "a loop": lambda: Using(unrolled, cell=nn.RNNCell(4, 4)),
    "an error that is caught": lambda: Using(caught, a=linear(), b=linear()),
    "scripted": lambda: scripted(nn.Sequential(linear(), nn.Tanh(), linear())),
}
CASES = {name: Case(build, ((4,),)) for name, build in ELSEWHERE.items()}
CASES["tied"] = Case(
    lambda: Using(lambda n, x: n.words(x).mean(1) @ n.words.weight.T, words=nn.Embedding(7, 4)), ((5,),), 7
)
CASES |= {
    name: LAYERS[name] for name in ("MultiheadAttention", "TransformerEncoderLayer", "LSTM", "tied", "weight norm")
}

DECOMFL = {"name": "decomfl", "perturbations": 2, "local_steps": 2, "learning_rate": 0.05}


def digest(folder: Path, case: Case, revert: str, **fields: Any) -> str:
    """Return the digest of a run of three rounds on a network."""
    what = {"algorithm": DECOMFL | {"revert": revert}, "stop": {"rounds": 3}, "evaluation": {"every": 3}} | fields
    return str(run(scenario(**what), folder / revert, task=task(case)).summary["digest"])


@pytest.mark.few(2)
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_run_with_light_has_the_digest_of_one_with_copies(case: Case, tmp_path: Path) -> None:
    assert digest(tmp_path, case, "light") == digest(tmp_path, case, "copy")


WAYS: dict[str, dict[str, Any]] = {
    "micro-batches": {"task": {"micro_batch": 5}},
    "bfloat16": {"algorithm": {"arithmetic": "bfloat16"}},
    "whole numbers": {"algorithm": {"arithmetic": "integer"}},
    "a mask": {"mask": {"rule": "random", "density": 0.5}},
    "HiSo": {"algorithm": {"name": "hiso"}},
    "two workers": {"placement": Placement("tcp", workers=2)},
    "tensors": {"device": "torch"},
}


@pytest.mark.few(1)
@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
@pytest.mark.usefixtures("warm_workers")
def test_light_has_the_digest_of_copies_whatever_else_a_run_has(way: dict[str, Any], tmp_path: Path) -> None:
    load_plugin(NETWORKS)
    digests = []
    for revert in ("copy", "light"):
        what = scenario(
            task={"name": "digits", "model": "networks:transposed"} | way.get("task", {}),
            algorithm=DECOMFL | {"revert": revert} | way.get("algorithm", {}),
            stop={"rounds": 3},
            **({"mask": way["mask"]} if "mask" in way else {}),
        )
        placement = way["placement"] if "placement" in way and revert == "light" else Placement("memory")
        with on_device(way.get("device", "cpu")):
            digests.append(run(what, tmp_path / revert, placement=placement).summary["digest"])
    assert digests[0] == digests[1]


def in_another_thread(network: Any, inputs: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        outputs: Tensor = pool.submit(lambda: inputs @ network.a.weight.detach()).result()
        return outputs


UNTOLD: dict[str, Callable[[], nn.Module]] = {
    "compiled code": lambda: Using(lambda n, x: scripted(product)(x, n.a.weight), a=linear()),
    "compiled code, called too": lambda: Using(lambda n, x: n.a(x) + scripted(product)(x, n.a.weight), a=linear()),
    "another thread": lambda: Using(in_another_thread, a=linear()),
    "a compiled layer": lambda: Using(lambda n, x: n.a(x), a=compiled(linear())),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("build", UNTOLD.values(), ids=list(UNTOLD))
def test_a_use_of_which_torch_tells_nothing_is_refused_by_layer_before_the_run(build: Any, tmp_path: Path) -> None:
    case = Case(build, ((4,),))
    told = r"^algorithm\.revert: found light, and the weights of layer\.a\S* \(Linear\) are used .*; expected copy$"
    with pytest.raises(DataError, match=told):
        digest(tmp_path, case, "light")
    assert not (tmp_path / "light").exists()
    assert digest(tmp_path, case, "copy")


def test_unfilled_weights_are_seen_where_they_equal_the_initial_ones_and_hide_a_nan() -> None:
    """The weights are zeros at x₀, a comparison hides a NaN, and no weight differs from what the network began with."""

    def network() -> nn.Module:
        layer = linear()
        nn.init.zeros_(layer.weight)
        return Using(lambda n, x: x * scripted(above)(x, n.a.weight), a=layer)

    problem = bind(task(Case(network, ((4,),))))
    with pytest.raises(DataError, match=r"the weights of layer\.a \(Linear\) are used"):
        problem.check_layers()


def above(inputs: Tensor, weight: Tensor) -> Tensor:
    return (inputs > weight[0]).float()


def test_stacked_losses_are_refused_where_a_weight_is_not_the_stacked_one_and_is_zero_at_first() -> None:
    def network() -> nn.Module:
        layer: Any = in_a_list()
        for weight in layer.weights:
            nn.init.zeros_(weight)
        return layer  # type: ignore[no-any-return]

    problem = bind(task(Case(network, ((4,),)), forward="stacked"))
    with pytest.raises(
        DataError, match=r"task\.forward: stacked: found a network whose stacked loss is nan where its "
    ):
        problem.prepare(lambda *_, **__: None)
