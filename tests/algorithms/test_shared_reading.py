"""Reports that are read together are what each is alone, to the bit, or refused for the same reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algorithm_cases import CONFIGURATIONS, DIMENSION, make
from hypothesis import given
from hypothesis import strategies as st

from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.studies.check.promises import bits

KINDS: dict[str, Any] = dict(ALGORITHMS.all())
CASES = [(name, case) for name in CONFIGURATIONS if not KINDS[name]().facts.is_dense for case in CONFIGURATIONS[name]]
SCALARS = st.one_of(st.floats(width=32), st.sampled_from([0.0, 1e5, 1e6, 1e7, 1e12, 2e12, np.inf, np.nan]))


def alone(algorithm: Any, body: Any, plan: Any) -> Any:
    """Return the report, or why it is refused."""
    try:
        report = algorithm.unpack_report(body, plan)
        algorithm.check(plan, report)
    except (BadPayload, ReportRefused) as error:
        return error
    return report


def assert_same(algorithm: Any, bodies: list[Any], plan: Any) -> int:
    """Compare reports that are read together with those that are read alone; return how many were."""
    together = algorithm.read_reports(bodies, plan)
    assert len(together) == len(bodies)
    for body, report in zip(bodies, together, strict=True):
        expected = alone(algorithm, body, plan)
        form = str if isinstance(expected, Exception) else bits
        assert type(report) is type(expected) and form(report) == form(expected)
    return sum(not isinstance(report, Exception) for report in together)


@pytest.mark.parametrize(("name", "case"), CASES, ids=str)
def test_whatever_is_read_together_would_be_accepted_alone(name: str, case: str) -> None:
    algorithm = make(name, **CONFIGURATIONS[name][case]).sized(DIMENSION)
    plan = algorithm.plan(0, 0, 7)
    sizes = {size for width in (1, 2, 4) for size in (plan.steps * plan.perturbations * width, 3)}
    bodies: list[Any] = [[], [0], ["text"], [[b""]], [b"", b""]]
    bodies += [[bytes(size)] for size in sizes] + [[b"\xff" * size] for size in sizes]
    assert_same(algorithm, bodies, plan)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
@given(rows=st.lists(st.lists(SCALARS, min_size=6, max_size=6), max_size=8))
def test_sound_reports_are_read_together(precision: Any, rows: list[list[float]]) -> None:
    algorithm = DeComFL(perturbations=3, local_steps=2, precision=precision)
    plan = algorithm.plan(0, 0, 7)
    with np.errstate(all="ignore"):
        reports = [np.array(row, np.float32).reshape(2, 3) for row in rows]
        bodies = [algorithm.pack_report(plan, report).body for report in reports]
    few = sum(bool(np.abs(report).max() < 6e4 and np.isfinite(report).all()) for report in reports)
    assert assert_same(algorithm, [*bodies, [b"short"]], plan) >= few


def test_an_algorithm_with_a_check_of_its_own_reads_each_report_alone() -> None:
    class Strict(DeComFL):
        def check(self, plan: Any, report: Any) -> None:
            raise ReportRefused("shape", "nothing is good enough")

    algorithm = Strict(perturbations=1)
    (refused,) = algorithm.read_reports([[bytes(4)]], algorithm.plan(0, 0, 7))
    assert isinstance(refused, ReportRefused) and str(refused) == "nothing is good enough"


def test_reports_of_an_algorithm_that_reads_or_checks_them_its_own_way_are_read_alone() -> None:
    class Reading(DeComFL):
        def unpack_report(self, body: Any, plan: Any) -> Any:
            return super().unpack_report(body, plan)

    class Checking(DeComFL):
        def check(self, plan: Any, report: Any) -> None:
            super().check(plan, report)

    plan = DeComFL().plan(0, 0, 7)
    bodies = [DeComFL().pack_report(plan, np.ones(plan.shape, np.float32)).body] * 2
    for algorithm in (Reading(), Checking(), make("decomfl", arithmetic="integer")):
        assert assert_same(algorithm, bodies, plan) == 2
    assert assert_same(DeComFL(), bodies, plan) == 2
