"""Seedbus: federated learning as messages, with every byte counted.

    import seedbus
    scenario = seedbus.load("quickstart", ["stop.rounds=50"])    # or from a dict of fields
    task = seedbus.TorchTask(network=build, train=train_set, test=test_set)    # your own model and data
    results = seedbus.run(scenario)             # or seedbus.run(scenario, task=task, settings={"stop.rounds": 50})
    results.metrics                             # a data frame with a row for every evaluation
    results.messages                            # a data frame with a row for every message
    results.clients                             # a data frame with a row for every client
    results.expectations                        # what the scenario expects, and what was found
    results.model().network()(inputs)           # the trained network; model(20) is that after round 20, bit for bit
    seedbus.replay("runs/a-1", round=20)        # the same of an older run
    seedbus.predict("model.safetensors", "new.csv")     # an exported model of a table, applied to new rows
    seedbus.analyse(results.folder, only="fairness")    # instruments: curvature, drift, fairness, replay or pull
    print(seedbus.compare(["runs/a-1", "runs/b-1"]))    # runs side by side
    seedbus.study("dropout.yaml", jobs=4).table         # many settings and seeds, also with task and settings

Importing this loads nothing: no torch, no scenario. A name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

_FOLDER = Path(__file__).parent
if not (_FOLDER / "bus").is_dir():
    # Imported from the root of a checkout, where the layers are this folder's siblings.
    __path__.append(str(_FOLDER.parent))

if TYPE_CHECKING:
    __version__: str
    from seedbus.scenarios.running.predict import predict
    from seedbus.scenarios.running.replay import Replayed, replay
    from seedbus.scenarios.running.results import Results
    from seedbus.scenarios.running.run import run
    from seedbus.scenarios.schema.loading import load
    from seedbus.scenarios.schema.scenario import Scenario, TorchTask
    from seedbus.studies.analysis.analyse import analyse
    from seedbus.studies.study.compare import compare
    from seedbus.studies.study.comparison import Comparison
    from seedbus.studies.study.results import StudyResults
    from seedbus.studies.study.study import study
    from seedbus.studies.study.study_report import StudyReport

_HOMES = {
    "Comparison": "studies.study.comparison",
    "Replayed": "scenarios.running.replay",
    "Results": "scenarios.running.results",
    "Scenario": "scenarios.schema.scenario",
    "StudyReport": "studies.study.study_report",
    "StudyResults": "studies.study.results",
    "TorchTask": "scenarios.schema.scenario",
    "analyse": "studies.analysis.analyse",
    "compare": "studies.study.compare",
    "load": "scenarios.schema.loading",
    "predict": "scenarios.running.predict",
    "replay": "scenarios.running.replay",
    "run": "scenarios.running.run",
    "study": "studies.study.study",
}

__all__ = [
    "Comparison",
    "Replayed",
    "Results",
    "Scenario",
    "StudyReport",
    "StudyResults",
    "TorchTask",
    "analyse",
    "compare",
    "load",
    "predict",
    "replay",
    "run",
    "study",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("seedbus.versions").version("seedbus")
    if name in _HOMES:
        return getattr(import_module(f"seedbus.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'seedbus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
