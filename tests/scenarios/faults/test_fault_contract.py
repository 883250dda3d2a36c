"""The contract of every fault. These tests run on a new fault once its cases are added to `fault_cases`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fault_cases import CASES, FIRST, IDLING, OTHERS_IN_SOAK, STRIKING, Line
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from reference_tables import tables

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.base import FAULTS, ClientSelector
from seedbus.scenarios.faults.trace import Trace
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import json_schema
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.check import fault as conformance
from seedbus.studies.check.fault import Trial, world
from seedbus.studies.check.runs import End, ended, require_equal_ends


def trial(name: str, line: Line) -> Trial:
    return Trial(line, CASES[name].world)


def outcome_of(name: str, *lines: Line) -> End:
    """Return how an in-memory run ends with these lines."""
    return ended(world(list(lines), **CASES[name].world))


def counts(end: End) -> list[dict[str, Any]]:
    return list(end[0]["faults"])


@cache
def reference() -> str:
    return tables()


@cache
def definitions() -> dict[str, Any]:
    return dict(json_schema()["$defs"])


def test_every_fault_has_its_cases() -> None:
    assert CASES.keys() == FAULTS.all().keys()
    assert all(case.strikes and case.idles for case in CASES.values())


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_in_the_schema_and_in_the_reference(name: str) -> None:
    assert f"### `faults`: {name}\n" in reference()
    model = FAULTS.all()[name]
    assert model.__doc__ and definitions()[model.__name__]["properties"]["fault"]["const"] == name
    for title, field in model.model_fields.items():
        assert field.description or title == "fault"


@pytest.mark.few(23)
@pytest.mark.parametrize(("name", "line", "does"), STRIKING)
def test_a_line_of_a_scenario_comes_back_from_its_own_text(tmp_path: Path, name: str, line: Line, does: str) -> None:
    what = world([line], **CASES[name].world)
    (tmp_path / "s.yaml").write_text(dump(what.resolved()))
    again = load(tmp_path / "s.yaml")
    assert again == what and repr(again.faults) == repr(what.faults)


@pytest.mark.parametrize(("name", "line", "does"), FIRST)
def test_a_field_at_its_default_keys_no_draw(name: str, line: Line, does: str) -> None:
    """Otherwise a field that a later version adds would change what all scenarios draw."""
    fields = FAULTS.all()[name].model_fields.items()
    defaults = {each: field.get_default() for each, field in fields if not field.is_required()}
    (fault,), (told,) = (world([each], **CASES[name].world).faults for each in (line, defaults | line))
    assert repr(told) == repr(fault)
    assert {field for field, _ in fault.__repr_args__()} <= {each for each in line if each != "fault"}


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "line", "does"), OTHERS_IN_SOAK)
def test_a_fault_is_counted_changes_the_run_and_lets_no_replica_diverge(name: str, line: Line, does: str) -> None:
    end = outcome_of(name, line)
    assert counts(end)[0]["fault"] == name and counts(end)[0][does] > 0
    conformance.it_lets_no_replica_diverge(trial(name, line))
    if CASES[name].alters:
        assert end[0]["ledger_hash"] != outcome_of(name)[0]["ledger_hash"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("transport", "name", "line", "does"),
    [pytest.param("tcp", *each.values, id=f"tcp-{each.id}", marks=each.marks) for each in OTHERS_IN_SOAK]
    + [
        pytest.param(way, *each.values, id=f"{way}-{each.id}", marks=[pytest.mark.soak] * (number > 0))
        for way in ("inproc", "ipc")
        for number, each in enumerate(FIRST)
    ],
)
def test_the_same_seed_gives_the_same_faults_on_every_transport(
    transport: str, name: str, line: Line, does: str
) -> None:
    conformance.is_the_same_on(transport, trial(name, line))


@settings(max_examples=20)
@given(fraction=st.floats(0, 1), seed=st.integers(0, 2**31))
@pytest.mark.parametrize(("name", "line", "does"), FIRST)
def test_the_groups_of_a_fault_are_together_the_clients_that_it_selects_each_once(
    name: str, line: Line, does: str, fraction: float, seed: int
) -> None:
    fault: Any = made(name, json.dumps(line), fraction)
    random = KeyedRandom(seed, 8, repr(fault))
    found = [client for members in fault.client_groups(8, random).values() for client in members]
    selected = [
        client for client in range(8) if isinstance(fault, ClientSelector) and fault.selects_client(client, random)
    ]
    if "file" in line and "device" not in Path(line["file"]).name:  # of whom its file has lines
        selected = [client for client in selected if client < (4 if isinstance(fault, Trace) else 3)]
    assert sorted(found) == selected
    if hasattr(fault, "strikes_client"):
        assert sorted(found) == [each for each in range(8) if fault.strikes_client(each, fault.at_round, random)]


@cache
def made(name: str, line: str, fraction: float) -> Any:
    """Return a fault that strikes whenever it may."""
    kind = FAULTS.all()[name]
    always = {"fraction": fraction, "clients": None, "probability": 1.0}
    return kind.model_validate(
        json.loads(line) | {each: value for each, value in always.items() if each in kind.model_fields}
    )


@pytest.mark.parametrize(("name", "line", "does"), STRIKING)
def test_a_verdict_depends_on_the_message_alone(name: str, line: Line, does: str) -> None:
    conformance.verdicts_depend_on_the_message_alone(trial(name, line))


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "line"), IDLING)
def test_a_fault_of_no_intensity_changes_nothing_to_the_byte(name: str, line: Line) -> None:
    conformance.is_idle(trial(name, line))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "line", "does"), FIRST)
def test_a_fault_made_idle_by_its_base_class_changes_nothing(name: str, line: Line, does: str) -> None:
    conformance.without_intensity_it_changes_nothing(trial(name, line))
    conformance.it_does_not_change_what_other_faults_draw(trial(name, line))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "line", "does"), OTHERS_IN_SOAK)
def test_faults_that_never_apply_do_not_change_other_faults(name: str, line: Line, does: str) -> None:
    idle = [{"fault": other} | idle for other, case in CASES.items() if not case.world for idle in case.idles]
    conformance.leaves_alone(idle, [line], CASES[name].world)


ALL = [{"fault": name} | line for name, case in CASES.items() if not case.world for line, _ in case.strikes.values()]


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(chosen=st.lists(st.integers(0, len(ALL) - 1), unique=True, min_size=2, max_size=5), data=st.data())
def test_the_order_of_faults_changes_nothing(chosen: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(chosen))))
    lines = [ALL[number] for number in chosen]
    assume(sum(line["fault"] == "link-trace" for line in lines) < 2)  # a client has one
    one, another = (ended(world(each)) for each in (lines, [lines[place] for place in order]))
    require_equal_ends(conformance.without_counts(another), conformance.without_counts(one), "in this order", "in that")
    assert counts(another) == [counts(one)[place] for place in order]
    assert any(len(each) > 1 for each in counts(one)) and "diverged" not in one[0]["refusals"]


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "line", "does"), OTHERS_IN_SOAK)
def test_a_run_that_is_interrupted_and_resumed_ends_alike(name: str, line: Line, does: str) -> None:
    conformance.a_run_that_is_interrupted_and_resumed_ends_alike(trial(name, line))


@pytest.mark.few(4)
@pytest.mark.parametrize(("name", "line", "does"), OTHERS_IN_SOAK)
def test_what_loses_messages_needs_a_deadline_and_what_does_not_ends_without_one(
    name: str, line: Line, does: str
) -> None:
    conformance.what_loses_messages_says_so(trial(name, line))
