"""A run's scenario as an app of Flower (https://flower.ai): a folder for `flwr run`.

The app asks `federation.Federation` for everything but messages and the server's step, so it trains as the run did.
What it could not keep is refused. Methods whose clients send nothing but models are Flower's FedAvg; four others have a
strategy of their own, which moves the model as ours does, with two exceptions. Flower's adaptive ones begin with v = 0:
the app gives them the τ² of `dense.methods.adaptive`. And its FedAdam corrects its step for bias, which is said.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from string import Template
from typing import Any

from seedbus.agents.errors import RunFolderError
from seedbus.algorithms.dense.base import FedAvg
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import RESULTS, scenario_of, writable
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.versions import version

_TEMPLATE = Path(__file__).parent / "flower_app"
_COPIED = ("app/client_app.py", "app/server_app.py", "app/scenario.py")
_FILLED = {"pyproject.toml": "project.toml", "README.md": "README.md"}  # tools take the first for a project here
_SECTIONS = ("participation", "evaluation", "stop")
_KEPT: dict[str, set[str]] = {
    "": {
        "name",
        "description",
        "seed",
        "task",
        "mask",
        "partition",
        "algorithm",
        "participation",
        "evaluation",
        "stop",
    },
    "participation": {"clients", "cohort", "fraction"},
    "evaluation": {"every", "split"},
    "stop": {"rounds", "diverged"},
}
"""The fields that an app keeps, by section."""
_NO_MATTER = {"lag", "clock", "transport", "network", "compute", "client_groups", "expect", "verify", "verify_every"}
"""Fields that change neither a model nor when it is evaluated, without faults and deadlines."""
_LOST = ("aggregation", "compression", "error_feedback", "channel")  # of the algorithm
_SETTABLE = ("local_steps", "epochs", "learning_rate", "decay", "momentum", "weight_decay", "clip")
_STRATEGIES = {"fedavgm": "FedAvgM", "fedadam": "FedAdam", "fedyogi": "FedYogi", "fedadagrad": "FedAdagrad"}


def write_app(run: Path, folder: Path) -> list[str]:
    """Write a run's scenario as an app of Flower; return what to know of it, a sentence each.

    Raises:
        ScenarioError: Flower has no strategy for the algorithm, or the app could not keep all of the scenario.
        RunFolderError: the folder is there already, or cannot be written.
        JournalDamaged: the run's journal cannot be read.
    """
    scenario = scenario_of(run)
    strategy, arguments = _strategy(run, scenario)
    if lost := [*_lost(scenario)]:
        raise ScenarioError(str(run), [f"an app of Flower would not keep {', '.join(lost)}; expected a run without"])
    differs = ["Flower's FedAdam corrects its step for bias, Seedbus's does not"] if strategy == "FedAdam" else []
    clients = scenario.participation.clients
    blanks = {
        "name": _name(scenario),
        "version": version("seedbus"),
        "clients": str(clients),
        "fields": _toml(_fields(scenario)),
        "strategy": strategy,
        "arguments": _toml(arguments),
        "differs": "".join(f" {sentence}." for sentence in differs),
        "found": _found(run, scenario),
    }
    with writable(folder):
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise RunFolderError(folder, "there is something here already; expected a new folder") from None
        try:
            (folder / "app").mkdir()
            (folder / "app" / "__init__.py").touch()
            (folder / "app" / "scenario.yaml").write_text(str(scenario), encoding="utf-8")
            for name in _COPIED:
                (folder / name).write_bytes((_TEMPLATE / name).read_bytes())
            for name, template in _FILLED.items():
                text = (_TEMPLATE / template).read_text(encoding="utf-8")
                (folder / name).write_text(Template(text).substitute(blanks), encoding="utf-8")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # half an app would stand in the way of the next try
            raise
    return [f"written to {folder}: {strategy}, for {clients:,} SuperNodes; its README.md says how to run it", *differs]


def _strategy(run: Path, scenario: Scenario) -> tuple[str, dict[str, Any]]:
    """Return the name of Flower's strategy for a scenario, and its arguments. Raises `ScenarioError`: there is none."""
    algorithm, participation = scenario.algorithm, scenario.participation
    if not isinstance(algorithm, FedAvg):
        what = f"clients of {algorithm.facts.label} do not send models, which Flower's strategies average"
        raise ScenarioError(str(run), [f"{what}; expected a dense algorithm"])
    beyond = algorithm.beyond_means
    if unknown := [each.name for each in beyond if each.name not in _STRATEGIES]:
        what = f"Flower has no strategy that does what the server and the clients of {unknown[0]} do"
        raise ScenarioError(str(run), [f"{what}; expected {', '.join(_STRATEGIES)}, or clients that send models alone"])
    rate, arguments = algorithm.server_learning_rate, dict[str, Any]()
    name = _STRATEGIES[beyond[0].name] if beyond else "FedAvg" if rate == 1 else "FedAvgM"
    own = beyond[0].model_dump() if beyond else {}
    if name == "FedAdagrad" and own["beta1"]:
        what = f"Flower's FedAdagrad has no β₁, which is {own['beta1']:g} here; expected algorithm.beta1: 0"
        raise ScenarioError(str(run), [what])
    if name == "FedAvgM":
        arguments = {"server_learning_rate": rate, "server_momentum": own.get("server_momentum", 0.0)}
    elif name != "FedAvg":
        betas = {f"beta_{number}": own[f"beta{number}"] for number in (1, 2) if name != "FedAdagrad"}
        arguments = {"eta": rate, **betas, "tau": own["adaptivity"]}
    asked, clients = participation.size, participation.clients
    nodes = {"fraction_train": asked / clients, "min_train_nodes": asked, "min_available_nodes": clients}
    return name, {**nodes, "fraction_evaluate": 0.0, **arguments}


def _lost(scenario: Scenario) -> Iterator[str]:
    """Yield the fields that an app would not keep, as the scenario spells them."""
    yield from _changed("", scenario, _KEPT[""] | _NO_MATTER)
    for section in _SECTIONS:
        yield from _changed(f"{section}.", getattr(scenario, section), _KEPT[section])
    algorithm: Any = scenario.algorithm
    yield from _changed("algorithm.", algorithm, {*type(algorithm).model_fields} - {*_LOST})
    if scenario.partition.is_partial:
        yield "partition: own"
    if scenario.stop.rounds is None:
        yield "an end without stop.rounds"


def _changed(prefix: str, settings: Any, kept: Set[str]) -> Iterator[str]:
    """Yield the fields of a section, but for those that are kept, which have another value than by default."""
    for name, field in type(settings).model_fields.items():
        if name not in kept and getattr(settings, name) != field.get_default(call_default_factory=True):
            yield f"{prefix}{name}"


def _name(scenario: Scenario) -> str:
    """Return a name that Flower accepts: a letter, then letters, digits and hyphens, 32 in all."""
    plain = re.sub("[^A-Za-z0-9]+", "-", scenario.name)
    return (plain if plain[0].isalpha() else f"app-{plain}")[:32].strip("-")


def _fields(scenario: Scenario) -> dict[str, Any]:
    """Return the fields that a run of the app may change, by their names with dots."""
    algorithm, batch = scenario.algorithm, getattr(scenario.task, "batch_size", None)
    found = {"seed": scenario.seed, "stop.rounds": scenario.stop.rounds, "task.batch_size": batch}
    found |= {f"algorithm.{name}": getattr(algorithm, name, None) for name in _SETTABLE}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def _toml(values: Mapping[str, Any]) -> str:
    return "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items())


def _found(run: Path, scenario: Scenario) -> str:
    """Return what the run found, in words."""
    if not (run / RESULTS).exists():
        return "has not ended"
    results = Results.read(run)
    metrics = results.summary["metrics"]
    found = ", ".join(f"{name} {metrics.get(name)}" for name in scenario.task.metrics)
    return f"ended at {found}" + (f" ({results.warning})" if results.warning else "")
