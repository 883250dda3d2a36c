"""What every fault promises. Its runs are fifteen rounds of HiSo with a deadline that some answers miss."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from seedbus.agents.client.relabelling import Relabel
from seedbus.agents.errors import Unfinishable
from seedbus.bus import Kind, Passage
from seedbus.bus.keyed_random import KeyedRandom
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.base import ClientSelector, RoundSelector
from seedbus.scenarios.transports.placement import Placement
from seedbus.settings import draw_key
from seedbus.studies.check import runs
from seedbus.studies.check.promises import require
from seedbus.studies.check.runs import End, ended, require_equal_ends

HISO: dict[str, Any] = {"name": "hiso", "perturbations": 5, "local_steps": 2, "learning_rate": 0.001}
OTHERS: list[dict[str, Any]] = [
    {"fault": "drop", "probability": 0.2},
    {"fault": "straggler", "factor": {"distribution": "exponential", "mean": 2.0}, "probability": 0.5},
]
"""Faults whose draws no other fault may change."""
DIGITS: dict[str, Any] = {"name": "digits", "model": "softmax"}
"""A task with classes, for a fault that changes labels."""


class Trial(NamedTuple):
    """A fault in a scenario.

    Attributes:
        line: its entry in `faults`.
        changes: further fields that the scenario needs.
    """

    line: dict[str, Any]
    changes: dict[str, Any] = {}  # noqa: RUF012

    @property
    def fault(self) -> Any:
        """The fault that the line describes."""
        return world([self.line], **self.changes).faults[0]


def subject(fault: Any) -> Trial:
    return Trial(fault.model_dump(mode="json"), {"task": DIGITS} if isinstance(fault, Relabel) else {})


def world(lines: list[dict[str, Any]], **changes: Any) -> Any:
    """Return a scenario under these faults."""
    fields: dict[str, Any] = {
        "algorithm": HISO,
        "compute": {"evaluation": {"distribution": "exponential", "mean": 0.01}},
        "participation": {"clients": 8, "cohort": 4, "deadline_s": 0.6},
        "evaluation": {"every": 5},
        "stop": {"rounds": 15},
    }
    return runs.world(**(fields | changes), faults=lines)


def results(trial: Trial) -> Any:
    """Return what another process has to find, too."""
    return json.dumps(without_counts(ended(world([trial.line], **trial.changes)))[0], sort_keys=True)


def idles(fault: Any) -> list[dict[str, Any]]:
    """Return the entries that make a fault strike nobody, as far as it has a field for that and they are accepted."""
    line = fault.model_dump(mode="json")
    nobody = [line | {"clients": [], "fraction": None}] if isinstance(fault, ClientSelector) else []
    never = [line | {"probability": 0.0}] if isinstance(fault, RoundSelector) else []
    return [each for each in (*never, *nobody) if _accepts(type(fault), each)]


def _accepts(kind: Any, line: dict[str, Any]) -> bool:
    """Whether a fault can be made from a line; one whose rates are given has no probability beside them."""
    try:
        kind.model_validate(line)
    except ValidationError:
        return False
    return True


def it_comes_back_from_its_own_text(trial: Trial) -> None:
    """Written as JSON and read again, a fault is the same and draws the same."""
    fault = trial.fault
    again = type(fault).model_validate_json(fault.model_dump_json())
    require(again == fault and draw_key(again) == draw_key(fault), f"{fault!r:.80} came back as {again!r:.80}")


def it_lets_no_replica_diverge(trial: Trial) -> None:
    """Under the fault every verified replica keeps the same bits."""
    summary = ended(world([trial.line], **trial.changes))[0]
    require("diverged" not in summary["refusals"], f"refused: {summary['refusals']}")


def verdicts_depend_on_the_message_alone(trial: Trial) -> None:
    """A verdict depends on the message alone, not on those that were judged before."""
    fault = trial.fault
    if not hasattr(fault, "judge"):
        return
    random = KeyedRandom(7, 8, draw_key(fault))
    kinds = (Kind.PLAN, Kind.REPORT)
    asked = [
        Passage(kind, client, round, 0, copy, 10**8 * round, arriving, random)
        for round in range(15)
        for client in range(8)
        for kind in kinds
        for copy in (0, 1)
        for arriving in (False, True)
    ]
    first = [fault.judge(each) for each in asked]
    backwards = [fault.judge(each) for each in reversed(asked)][::-1]
    for passage, one, other in zip(asked, first, backwards, strict=True):
        what = f"{passage.kind.name} of client {passage.client} in round {passage.round}"
        require(one == other, f"{what}: {one} at first, and {other} in another order")


def its_groups_are_of_clients_that_there_are(trial: Trial) -> None:
    """Its groups are of clients that there are, and the same whenever it is asked."""
    fault = trial.fault
    random = KeyedRandom(7, 8, draw_key(fault))
    one, other = ({name: list(each) for name, each in fault.client_groups(8, random).items()} for _ in range(2))
    require(one == other, f"they are {one} at first, and then {other}")
    for name, members in one.items():
        strange = [each for each in members if each not in range(8)]
        require(not strange, f"{name} has {strange[:1]}, and clients are 0 to 7")


def without_intensity_it_changes_nothing(trial: Trial) -> None:
    """With probability 0, or with no clients, it changes no byte of a run."""
    without = ended(world([], **trial.changes))
    for line in idles(trial.fault):
        _require_idle(line, trial.changes, without)


def is_idle(trial: Trial) -> None:
    """Raise AssertionError unless a run with this line is that without it, byte for byte."""
    _require_idle(trial.line, trial.changes, ended(world([], **trial.changes)))


def _require_idle(line: dict[str, Any], changes: dict[str, Any], without: End) -> None:
    found = ended(world([line], **changes))
    require_equal_ends(without_counts(found), without_counts(without), f"with {_words(line)}", "without the fault")
    require(found[0]["faults"] == [{"fault": line["fault"]}], f"with {_words(line)} it counts {found[0]['faults']}")


def it_does_not_change_what_other_faults_draw(trial: Trial) -> None:
    """Added with probability 0, or with no clients, it changes no draw of other faults."""
    for line in idles(trial.fault):
        leaves_alone([line], OTHERS, trial.changes)


def leaves_alone(idle: list[dict[str, Any]], lines: list[dict[str, Any]], changes: dict[str, Any]) -> None:
    """Raise AssertionError unless idle lines before others change nothing of a run with those alone."""
    alone, among = ended(world(lines, **changes)), ended(world([*idle, *lines], **changes))
    require_equal_ends(without_counts(among), without_counts(alone), "with the fault among others", "without it")
    found, expected = among[0]["faults"][len(idle) :], alone[0]["faults"]
    require(found == expected, f"the others count {found} with the fault, and {expected} without it")


def it_strikes_the_same_on_every_transport(trial: Trial) -> None:
    """The same seed gives the same faults on tcp as in memory."""
    is_the_same_on("tcp", trial)


def is_the_same_on(transport: str, trial: Trial) -> None:
    """Raise AssertionError unless a run ends on a transport as in memory."""
    what = world([trial.line], **trial.changes)
    require_equal_ends(ended(what, Placement(transport)), ended(what), f"on {transport}", "in memory")


def a_run_that_is_interrupted_and_resumed_ends_alike(trial: Trial) -> None:
    """A run that is interrupted and resumed ends as one that never was."""
    what = world([trial.line], **trial.changes)
    require_equal_ends(ended(what, interrupted=True), ended(what), "interrupted and resumed", "without")


def what_loses_messages_says_so(trial: Trial) -> None:
    """Without a deadline the run ends, unless the fault says that it may lose messages (`may_lose`)."""
    patient = trial.changes | {"participation": {"clients": 8, "cohort": 4}}
    try:
        what = world([trial.line], **patient)
    except ScenarioError as error:
        require("loses messages, so a round would wait for ever" in str(error), f"refused: {error}")
        return
    try:
        summary = ended(what)[0]
    except Unfinishable as error:
        raise AssertionError(f"a round waits for ever ({error}); its property may_lose has to be True") from None
    require(summary["rounds"] == what.stop.rounds, f"{summary['rounds']} of {what.stop.rounds} rounds were closed")


def without_counts(end: End) -> End:
    """Return how a run ends without the counts of faults, and what is named for faults: figures of groups, devices."""
    summary, lines = end
    return {name: value for name, value in summary.items() if name not in ("faults", "groups", "client_devices")}, lines


def _words(line: dict[str, Any]) -> str:
    return "probability 0" if line.get("probability") == 0 else "no clients" if line.get("clients") == [] else str(line)


CONTRACT: Sequence[Any] = [
    it_comes_back_from_its_own_text,
    it_lets_no_replica_diverge,
    verdicts_depend_on_the_message_alone,
    its_groups_are_of_clients_that_there_are,
    without_intensity_it_changes_nothing,
    it_does_not_change_what_other_faults_draw,
    it_strikes_the_same_on_every_transport,
    a_run_that_is_interrupted_and_resumed_ends_alike,
    what_loses_messages_says_so,
]
