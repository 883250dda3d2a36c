"""What rules a run out before its data and weights are loaded: the size of messages and of the server's state, an empty
split, classes that there are not, and where its clients are to be.

`check`, `explain`, `run` and `study` all ask here, so that what can never run is said at once.
"""

from __future__ import annotations

import numpy as np

from seedbus.agents.client.relabelling import Relabel
from seedbus.bus.envelope import FRAME_LIMIT, SHORT
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.plugin_use import refuse_local
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.sentences import quoted
from seedbus.scenarios.transports import transports
from seedbus.scenarios.transports.placement import Placement

LONGEST_VECTORS = FRAME_LIMIT - SHORT
"""The most bytes that vectors may take in a message, which has other fields too."""
LONGEST_STRING = 2**32 - 1  # bytes; msgpack has none of more
LARGEST_STATE = 2**36  # bytes; the journal has room for more, and the memory of few machines has


def refuse_impossible(scenario: Scenario, placement: Placement | None = None) -> None:
    """Refuse what is known to be impossible from the scenario alone, without the data and the weights of its task.

    Args:
        scenario: the run's scenario.
        placement: where its clients are; None: in this process, with the scenario's own transport.

    Raises:
        ScenarioError, DataError, BadEndpoint: no run of the scenario can begin there.
    """
    placement = placement or Placement(scenario.transport)
    transports.check(placement, scenario.participation.clients)
    for feature in scenario.features:
        if feature.only_here and not (placement.is_here and placement.transport == "memory"):
            what = f"{feature.only_here}; expected memory, without workers"
            raise ScenarioError(f"transport {placement.transport}", [what])
    if not placement.is_here:
        refuse_local(scenario.plugins)
        scenario.task.check_elsewhere()
    if scenario.partition.is_partial and scenario.evaluation.by == "server" and not scenario.task.has_test_set:
        expected = "expected by: clients, or a public test set in the scenario (task.test_file, task.folder)"
        raise ScenarioError(scenario.name, [f"evaluation.by is server, which has none of the samples; {expected}"])
    refuse_before_loading(scenario)


def refuse_before_loading(scenario: Scenario) -> None:
    """Do the same wherever its clients are. Raises `ScenarioError`."""
    task, split = scenario.task, scenario.evaluation.split
    if (declared := task.declared_dimension) is not None:
        refuse_size(scenario, declared)
    if split == "validation" and task.has_samples and not task.may_hold_out:
        what = f"evaluation.split is validation, and task {task.name} holds out no samples with task.validation: 0"
        raise ScenarioError(scenario.name, [f"{what}; expected a larger task.validation, or split: test"])
    if task.known_classes is not None:
        refuse_classes(scenario, task.known_classes)


def refuse_size(scenario: Scenario, dimension: int) -> None:
    """Raise `ScenarioError` where the algorithm sends more than a message may hold, or its server keeps more than the
    journal may, for a task of d coordinates."""
    trained = dimension if scenario.mask is None else scenario.mask.count(dimension)
    clients = scenario.participation.clients
    sizes = scenario.algorithm.sizes(trained, clients)
    needed = sizes.message
    if needed > LONGEST_VECTORS:
        what = (
            f"algorithm {scenario.algorithm.facts.label} sends models, and a message with the {trained:,} coordinates "
            f"of task {scenario.task.name} takes {needed:,} bytes; at most {LONGEST_VECTORS:,} are accepted: choose a "
            "smaller model, a mask, or a scalar-only algorithm such as decomfl"
        )
        raise ScenarioError(scenario.name, [what])
    if sizes.string > LONGEST_STRING:
        what = (
            f"algorithm.compression makes one string of {sizes.string:,} bytes of the {trained:,} coordinates of task "
            f"{scenario.task.name}; at most {LONGEST_STRING:,} are accepted: choose a smaller model, a mask, or no "
            "compression"
        )
        raise ScenarioError(scenario.name, [what])
    kept = sizes.state
    if kept > LARGEST_STATE:
        what = (
            f"algorithm {scenario.algorithm.facts.label} keeps {kept:,} bytes at the server, for {clients:,} clients "
            f"and {trained:,} coordinates; at most {LARGEST_STATE:,} are accepted"
        )
        raise ScenarioError(scenario.name, [what])


def refuse_classes(scenario: Scenario, classes: int) -> None:
    """Raise `ScenarioError` for a fault that changes labels to classes that there are not.

    Args:
        scenario: the run's scenario.
        classes: how many classes samples have; 0: they have none.
    """
    for number, fault in enumerate(scenario.faults):
        if not isinstance(fault, Relabel):
            continue
        if not classes:
            what = f"faults.{number} changes classes, and samples of task {scenario.task.name} have none"
            raise ScenarioError("faults", [f"{what}; a task that classifies is accepted"])
        try:
            new = np.asarray(fault.new_classes(classes))
        except ValueError as error:
            raise ScenarioError(f"faults.{number}", [str(error)]) from None
        if new.shape != (classes,) or new.dtype != np.int64 or new.min() < 0 or new.max() >= classes:
            what = f"new_classes({classes}) of a {type(fault).__name__} is {quoted(new.tolist())}"
            raise ScenarioError(f"faults.{number}", [f"{what}; expected int64 [{classes}] with classes from 0 on"])
