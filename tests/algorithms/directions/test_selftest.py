"""The self-test, which a process proves in its JOIN: it tells processes that would fold a commit to other bits."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numba
import numpy as np
import pytest
from look_ups import fetching, gathering

from seedbus.agents.admission import false_proof
from seedbus.agents.client.worker import prove
from seedbus.agents.messages import Join
from seedbus.algorithms.directions import numba_fold, reference, selftest
from seedbus.algorithms.directions.selftest import _on_host
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import HOST
from seedbus.models import Iid
from seedbus.models.tasks.null import Null

SELFTEST = "b3aecca4fedcf66de3ab624f995cd5be"

Arguments = list[Any]


@pytest.mark.parametrize("backend", [reference, gathering, fetching])
def test_the_self_test_has_its_known_digest(backend: Any) -> None:
    assert selftest(backend).hex() == selftest().hex() == SELFTEST


def last_first(arguments: Arguments) -> None:
    """The last step of a call is folded before the others."""
    arguments[4] = np.roll(arguments[4], 1)


def without_the_last_direction(arguments: Arguments) -> None:
    """A step's last direction is not folded."""
    arguments[4] = arguments[4].copy()
    arguments[4]["count"] = np.maximum(arguments[4]["count"] - 1, 1)


def rounded_at_the_end(arguments: Arguments) -> None:
    """x is rounded once for all steps of a call, and not after each."""
    arguments[-1] = (*arguments[-1][:-1], False)


@pytest.fixture
def in_a_new_process() -> Iterator[None]:
    """The process has made no self-test yet, and the test leaves none behind."""
    _on_host.cache_clear()
    yield
    _on_host.cache_clear()


@pytest.mark.usefixtures("in_a_new_process")
@pytest.mark.parametrize("change", [last_first, without_the_last_direction, rounded_at_the_end])
def test_a_process_whose_kernels_fold_commits_otherwise_is_refused_by_name(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = numba_fold._fold

    def changed(*arguments: Any) -> None:
        others = list(arguments)
        change(others)
        fold(*others)

    monkeypatch.setattr(numba_fold, "_fold", changed)
    shown = prove(DeComFL(), Null(losses="keyed").bind(seed=1, clients=6, partition=Iid()))
    found = false_proof(Join(HOST, (), **shown), {"selftest": selftest(reference)})
    assert found is not None and found[0] == "selftest" and "directions or arithmetic differ" in found[1]


def ties_up(x: Any) -> None:
    """Round to the nearest bfloat16, ties away from zero."""
    bits = x.view(np.uint32)
    for i in range(bits.size):
        bits[i] = (bits[i] + np.uint32(0x8000)) & np.uint32(0xFFFF0000)


def without_subnormals(x: Any) -> None:
    """Round to the nearest bfloat16, ties to even, but to 0 where that is subnormal."""
    bits = x.view(np.uint32)
    for i in range(bits.size):
        rounded = bits[i] + np.uint32(0x7FFF) + ((bits[i] >> np.uint32(16)) & np.uint32(1))
        bits[i] = rounded & np.uint32(0xFFFF0000) if abs(x[i]) >= np.float32(1.1754944e-38) else np.uint32(0)


def descend_fused(x: Any, delta: Any, rate: Any) -> None:
    """Compute x − rate·Δ with one rounding, as a fused multiply-add does."""
    for i in range(x.size):
        x[i] = np.float32(np.float64(x[i]) - np.float64(delta[i]) * np.float64(rate))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "other"), [("_round", ties_up), ("_round", without_subnormals), ("_descend", descend_fused)]
)
def test_kernels_that_round_otherwise_have_another_self_test(
    part: str, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = numba_fold._fold.py_func  # type: ignore[attr-defined]
    compiled = numba.njit(other, error_model="numpy")
    changed = FunctionType(source.__code__, source.__globals__ | {part: compiled})
    monkeypatch.setattr(numba_fold, "_fold", numba.njit(changed, error_model="numpy"))
    assert selftest().hex() != SELFTEST
