"""Plug-ins that break a promise are caught by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from plugin_files import SIGNS, forget

from seedbus.discovery import KINDS, PLUGINS
from seedbus.plugin import load_plugin
from seedbus.studies.check.elsewhere import found_elsewhere, found_of
from seedbus.studies.check.kinds import HOMES, home, subject_of

BROKEN = SIGNS.with_name("broken.py")


def found() -> dict[tuple[str, str], Any]:
    """The classes of the broken plug-in by (kind, name); `breaks` of each is a promise of its kind, or "elsewhere"."""
    load_plugin(BROKEN)
    every = {(kind.noun, name): found for kind in KINDS for name, found in kind.of(PLUGINS["broken"]).items()}
    return {pair: each for pair, each in every.items() if hasattr(each, "breaks")}


CAUGHT_HERE = {pair: each.breaks for pair, each in found().items() if each.breaks != "elsewhere"}
forget()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broken() -> Iterator[Any]:
    yield found()
    forget()


def all_of(module: Any) -> list[Any]:
    return [promise for name in ("CONTRACT", "RUNS", "WORKERS") for promise in getattr(module, name, ())]


@pytest.mark.parametrize(("noun", "name"), CAUGHT_HERE)
def test_what_breaks_a_promise_is_caught_by_it(broken: Any, noun: str, name: str) -> None:
    promises = {promise.__name__: promise for promise in all_of(home(noun))}
    with pytest.raises(AssertionError) as raised:
        promises[CAUGHT_HERE[noun, name]](subject_of(noun, broken[noun, name]()))
    assert str(raised.value)


def test_every_promise_of_every_kind_is_broken_by_somebody_but_those_of_whole_contracts() -> None:
    assert len(CAUGHT_HERE) == 81 and {noun for noun, _ in CAUGHT_HERE} == set(HOMES)
    caught = {(noun, promise) for (noun, _), promise in CAUGHT_HERE.items()}
    promises = {(noun, promise.__name__) for noun in HOMES for promise in all_of(home(noun))}
    assert {name for _, name in promises - caught} == {
        "fields_survive_a_round_trip_as_text",
        "a_run_with_losses_and_laggards_ends_with_the_same_bits_everywhere",
        "it_lets_no_replica_diverge",
        "a_run_in_two_worker_processes_ends_as_in_one",
        "two_worker_processes_give_the_same_bits_as_one",
        "a_slope_is_the_gradient_along_a_direction",
        "fedavg_keeps_its_contract_with_it",
        "algorithms_keep_their_contract_with_it",
    }


def test_another_process_finds_what_this_one_finds_unless_it_depends_on_the_process(broken: Any) -> None:
    lying = [(noun, broken[noun, name]()) for noun, name in broken.keys() - CAUGHT_HERE]
    assert len(lying) == 5
    honest = [(kind.noun, next(iter(kind.all().values()))()) for kind in KINDS if kind.noun in ("rule", "channel")]
    elsewhere = found_elsewhere([*lying, *honest])
    here = [found_of(noun, subject_of(noun, model)) for noun, model in [*lying, *honest]]
    agree = [one == other for one, other in zip(elsewhere, here, strict=True)]
    assert agree == [False] * len(lying) + [True] * len(honest)
