"""The contract of every fault. These tests run on a new fault once its cases are added to `fault_cases`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fault_cases import CASES, FIRST, IDLING, MISTAKEN, STRIKING, Line, world
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import go, outcome

from seedbus.agents.journal.journal import Entry, Journal
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.reporting.reference import tables
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load, validate
from seedbus.scenarios.schema.scenario import Scenario, json_schema
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement

Outcome = tuple[Any, ...]


@cache
def _ended(text: str) -> Outcome:
    with TemporaryDirectory() as folder:
        return outcome(go(Path(folder) / "run", validate(json.loads(text), "a test")))


def ended(what: Scenario) -> Outcome:
    """Return the outcome of an in-memory run."""
    return _ended(json.dumps(what.resolved()))


def faultless(case: str) -> Outcome:
    """Return the outcome of the run that tests a fault's cases, without the fault."""
    return ended(world([], **CASES[case].world))


def without_counts(outcome: Outcome) -> Outcome:
    """Return the outcome without the faults' own counts."""
    summary, lines = outcome
    return {name: value for name, value in summary.items() if name != "faults"}, lines


def counts(outcome: Outcome) -> list[dict[str, Any]]:
    return list(outcome[0]["faults"])


def test_every_fault_has_its_cases() -> None:
    assert CASES.keys() == FAULTS.all().keys()
    assert all(case.strikes and case.idles for case in CASES.values())


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_in_the_schema_and_in_the_reference(name: str) -> None:
    assert f"### `faults`: {name}\n" in tables()
    model = FAULTS.all()[name]
    assert model.__doc__ and json_schema()["$defs"][model.__name__]["properties"]["fault"]["const"] == name
    for title, field in model.model_fields.items():
        assert field.description or title == "fault"


@pytest.mark.parametrize(("name", "line", "does"), STRIKING)
def test_a_line_of_a_scenario_comes_back_from_its_own_text(tmp_path: Path, name: str, line: Line, does: str) -> None:
    what = world([line], **CASES[name].world)
    (tmp_path / "s.yaml").write_text(dump(what.resolved()))
    again = load(tmp_path / "s.yaml")
    assert again == what and repr(again.faults) == repr(what.faults)


@pytest.mark.parametrize(("name", "line", "sentence"), MISTAKEN)
def test_a_mistake_in_a_line_gets_one_sentence(name: str, line: Line, sentence: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        world([line], **CASES[name].world)
    assert raised.value.problems == [sentence]


@pytest.mark.parametrize(("name", "line", "does"), STRIKING)
def test_a_fault_is_counted_changes_the_run_and_lets_no_replica_diverge(name: str, line: Line, does: str) -> None:
    outcome_ = ended(world([line], **CASES[name].world))
    assert counts(outcome_)[0]["fault"] == name and counts(outcome_)[0][does] > 0
    assert "diverged" not in outcome_[0]["refusals"]
    if CASES[name].alters:
        assert outcome_[0]["ledger_hash"] != faultless(name)[0]["ledger_hash"]


@pytest.mark.few(10)
@pytest.mark.parametrize(
    ("transport", "name", "line", "does"),
    [("tcp", *each.values) for each in STRIKING] + [(way, *each.values) for way in ("inproc", "ipc") for each in FIRST],
)
def test_the_same_seed_gives_the_same_faults_on_every_transport(
    tmp_path: Path, transport: Any, name: str, line: Line, does: str
) -> None:
    what = world([line], **CASES[name].world)
    results = go(tmp_path / "run", what, placement=Placement(transport))
    assert outcome(results) == ended(what)


@pytest.mark.few(6)
@pytest.mark.parametrize(("name", "line"), IDLING)
def test_a_fault_of_no_intensity_changes_nothing_to_the_byte(name: str, line: Line) -> None:
    outcome_ = ended(world([line], **CASES[name].world))
    assert without_counts(outcome_) == without_counts(faultless(name))
    assert counts(outcome_) == [{"fault": name}]


@pytest.mark.few(6)
@pytest.mark.parametrize(("name", "line", "does"), STRIKING)
def test_faults_that_never_apply_do_not_change_other_faults(name: str, line: Line, does: str) -> None:
    idle = [{"fault": other} | idle for other, case in CASES.items() if not case.world for idle in case.idles]
    alone = ended(world([line], **CASES[name].world))
    among = ended(world([*idle, line], **CASES[name].world))
    assert without_counts(among) == without_counts(alone)
    assert counts(among)[-1:] == counts(alone)


ALL = [{"fault": name} | line for name, case in CASES.items() if not case.world for line, _ in case.strikes.values()]


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chosen=st.lists(st.integers(0, len(ALL) - 1), unique=True, min_size=2, max_size=5), data=st.data())
def test_the_order_of_faults_changes_nothing(chosen: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(chosen))))
    lines = [ALL[number] for number in chosen]
    one, another = (ended(world(each)) for each in (lines, [lines[place] for place in order]))
    assert without_counts(another) == without_counts(one)
    assert counts(another) == [counts(one)[place] for place in order]
    assert any(len(each) > 1 for each in counts(one)) and "diverged" not in one[0]["refusals"]


@pytest.mark.few(8)
@pytest.mark.parametrize(("name", "line", "does"), STRIKING)
def test_a_run_that_crashes_and_resumes_ends_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, line: Line, does: str
) -> None:
    what = world([line], **CASES[name].world)
    with monkeypatch.context() as patch:
        append = Journal.append

        def stop(self: Journal, entry: Entry) -> None:
            if entry.round == 8:
                raise KeyboardInterrupt
            append(self, entry)

        patch.setattr(Journal, "append", stop)
        with pytest.raises(KeyboardInterrupt):
            run(what, tmp_path / "run")
    assert outcome(run(what, tmp_path / "run", resume=True)) == ended(what)


@pytest.mark.few(12)
@pytest.mark.parametrize(("name", "line", "does"), STRIKING)
def test_what_loses_messages_needs_a_deadline_and_what_does_not_ends_without_one(
    name: str, line: Line, does: str
) -> None:
    patient = CASES[name].world | {"participation": {"clients": 8, "cohort": 4}}
    try:
        what = world([line], **patient)
    except ScenarioError as error:
        assert str(error).endswith(
            "faults.0 loses messages; set participation.deadline_s, or a round would wait for ever"
        )
        return
    assert ended(what)[0]["version"] == what.stop.rounds
