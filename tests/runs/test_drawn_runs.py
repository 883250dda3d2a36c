"""Whole runs on drawn schedules end as they do in memory; and errors of order are found, and told in few choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from drawn_runs import FAULTS, STEPS, WORLDS, Outcome, drawn_faults, drawn_run, reference, shrunk, what_is_wrong

from seedbus.bus.zeromq.checksums import CHECKSUM_BYTES, Checksums
from seedbus.bus.zeromq.server.routes import Routes
from seedbus.scenarios.reporting.results import Results

QUICK, SLOW = range(30), range(30, 300)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    return {world: reference(world, tmp_path_factory.mktemp("memory") / "run") for world in WORLDS}


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    def made() -> Iterator[Path]:
        for number in count():
            (tmp_path / str(number)).mkdir()
            yield tmp_path / str(number)

    return made()


def world_of(seed: int) -> str:
    return list(WORLDS)[seed % len(WORLDS)]


def fails(seed: int, expected: dict[str, Results], folder: Path) -> tuple[str, Outcome]:
    found = drawn_run(seed, world_of(seed), folder)
    return what_is_wrong(found, expected[world_of(seed)]), found


@pytest.mark.parametrize(
    "seeds", [pytest.param(QUICK, id="quick"), pytest.param(SLOW, id="slow", marks=pytest.mark.slow)]
)
def test_a_run_ends_on_every_schedule_as_it_does_in_memory(
    expected: dict[str, Results], folders: Iterator[Path], seeds: range
) -> None:
    wrong = {seed: why for seed in seeds if (why := fails(seed, expected, next(folders))[0])}
    assert not wrong


def test_a_seed_gives_the_same_schedule_again_also_by_its_deviations_alone(folders: Iterator[Path]) -> None:
    first = drawn_run(11, "late", next(folders))
    again = drawn_run(11, "late", next(folders))
    assert (first.deviations, first.steps, first.virtual_s, first.reached) == (
        again.deviations,
        again.steps,
        again.virtual_s,
        again.reached,
    )
    followed = drawn_run(11, "late", next(folders), given=first.deviations)
    assert (followed.steps, followed.virtual_s, followed.reached) == (first.steps, first.virtual_s, first.reached)
    other = drawn_run(12, "late", next(folders), faults=[])
    assert other.deviations != first.deviations


def test_a_schedule_has_one_and_a_half_faults_and_each_kind_occurs(folders: Iterator[Path]) -> None:
    drawn = [drawn_faults(seed, STEPS) for seed in range(1000)]
    assert {fault.kind for faults in drawn for fault in faults} == set(FAULTS)
    assert 1 < sum(map(len, drawn)) / len(drawn) < 2


def _unnoticed(original: Any) -> Any:
    def removed(self: Checksums, data: Any) -> Any:
        self._received += 1
        return data[:-CHECKSUM_BYTES] if self._are_used else data

    return removed


def _lost_with_its_session(original: Any) -> Any:
    def close(self: Routes, session: Any) -> None:
        session.take_unanswered()
        original(self, session)

    return close


PLANTED: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "a bit that flips under way is not noticed": (Checksums, "removed", _unnoticed),
    "what a lost process owes is not delivered again": (Routes, "close", _lost_with_its_session),
}
"""Errors that Seedbus had, or that a comment in its code warns of."""


@pytest.mark.slow
@pytest.mark.parametrize("what", PLANTED)
def test_an_error_of_order_is_found_and_shrunk(
    expected: dict[str, Results], folders: Iterator[Path], what: str
) -> None:
    owner, name, spoilt = PLANTED[what]
    with patch.object(owner, name, spoilt(getattr(owner, name))):
        for seed in range(100):
            wrong, found = fails(seed, expected, next(folders))
            if wrong:
                break
        assert wrong
        faults, given = shrunk(seed, world_of(seed), expected[world_of(seed)], found, folders)
    assert len(faults) <= 2 and len(given) < 10, f"seed {seed}: {wrong}; {faults}, {given}"
    right = drawn_run(seed, world_of(seed), next(folders), faults=faults, given=given)
    assert not what_is_wrong(right, expected[world_of(seed)])
