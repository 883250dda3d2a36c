"""Replay in Triton against the algorithms' own `apply`, bit for bit: on a GPU, or in the interpreter without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_cases import make, seed_of, x0
from triton_device import DEVICE, HAS_GPU, TritonReplay, assert_alike, running, to_device, to_host

from seedbus.algorithms.contract import Replica, Vector
from seedbus.algorithms.directions.triton_kernels import COUNT
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, Term
from seedbus.algorithms.scalar_only.precision import FORMATS
from seedbus.algorithms.scalar_only.replay import fused, replay_steps, rule_of

DIMENSION = 70_003 if HAS_GPU else 403  # odd
NARROW = FORMATS["bfloat16"]
Types = Mapping[str, torch.dtype]
ALL_NARROW = {"x": torch.bfloat16, "momentum": torch.bfloat16, "hessian": torch.bfloat16}
OF_EACH_KIND = [
    ("decomfl", {"directions": "rademacher"}),
    ("decomfl", {"momentum": 0.9}),
    ("decomfl", {"momentum": 0.9, "dampening": False}),
    ("decomfl", {"weight_decay": 0.1, "momentum": 0.9}),
    ("hiso", {}),
    ("hiso", {"hessian_step": "last", "clip": [0.9, 1.1], "momentum": 0.5}),
]
each = pytest.mark.parametrize(("name", "fields"), OF_EACH_KIND)
if_fast = pytest.mark.skipif(False, reason="") if HAS_GPU else pytest.mark.slow  # the interpreter is slow


@pytest.fixture(autouse=True)
def _running() -> Iterator[None]:
    with running():
        yield


def log_of(takes_late: bool, scale: float = 1.0, rate: float = 0.1) -> list[ScalarCommit]:
    """Return four commits of several shapes and weights, including late terms and a round with weight 0."""
    generator = np.random.default_rng(7)

    def term(round: int, steps: int, perturbations: int, weight: float = 1.0) -> Term:
        scalars = (generator.normal(size=(steps, perturbations)) * scale).astype(np.float32)
        return Term(round, seed_of(round), scalars, float(np.float32(weight)))

    terms = [
        (term(0, 1, 2),),
        (term(1, 2, 1, 0.7), *([term(0, 1, 2, 0.15)] if takes_late else [])),
        (term(2, 1, 1, 0.0), *([term(0, 2, 1, 0.3), term(1, 1, 1, 0.1)] if takes_late else [])),
        (term(4, 2, 2),),
    ]
    eta = float(np.float32(rate))
    return [ScalarCommit(i + 1, parts[0].round, eta / (1 << i), parts) for i, parts in enumerate(terms)]


def applied(algorithm: Any, commits: Sequence[ScalarCommit], start: Vector) -> dict[str, Vector]:
    """Return the reference: the fields of a replica that starts at `start`, after `apply`."""
    replica = algorithm.replica(start)
    algorithm.apply(replica, commits)
    fields: dict[str, Vector] = replica.fields
    return fields


def replayed(
    algorithm: Any, parts: Sequence[Sequence[ScalarCommit]], start: Vector, types: Types | None = None
) -> dict[str, Vector]:
    """Return the fields after Triton has folded the commits in the given parts."""
    types = types or {}
    tensors = {
        name: to_device(field).to(types.get(name, torch.float32))
        for name, field in algorithm.replica(start).fields.items()
    }
    replica: Any = Replica(0, tensors)  # type: ignore[arg-type]
    for part in parts:
        fold = fused(algorithm, TritonReplay(algorithm.directions), replica, part)  # type: ignore[arg-type]
        assert fold is not None
        fold(slice(0, start.size))
    return {name: to_host(tensor) for name, tensor in tensors.items()}


def narrowed(vector: Vector) -> Vector:
    """Round each coordinate to the nearest bfloat16; return float32."""
    return NARROW.widen(NARROW.narrow(vector))


def assert_all_alike(actual: dict[str, Vector], expected: dict[str, Vector]) -> None:
    assert set(actual) == set(expected)
    for name in expected:
        assert_alike(actual[name], expected[name])


def differing(actual: dict[str, Vector], expected: dict[str, Vector]) -> int:
    return sum(int(np.count_nonzero(actual[name] != expected[name])) for name in expected)


# float32


@pytest.mark.slow
@each
def test_replay_goes_on_from_program_to_program(name: str, fields: dict[str, Any]) -> None:
    algorithm, start = make(name, **fields), x0(2 * COUNT + 7)
    log = log_of(False)[:2]
    assert_all_alike(replayed(algorithm, [log], start), applied(algorithm, log, start))


@pytest.mark.slow
@each
def test_late_terms_and_weights_are_folded_as_apply_does(name: str, fields: dict[str, Any]) -> None:
    algorithm = make(name, **fields)
    log, start = log_of(algorithm.facts.takes_late), x0(DIMENSION)
    assert_all_alike(replayed(algorithm, [log], start), applied(algorithm, log, start))


@if_fast
@each
@pytest.mark.parametrize(("scale", "rate"), [(1e30, 1e10), (1e-38, 1e-3), (3e38, 1e3)])
def test_overflows_and_subnormals_agree_with_apply(
    name: str, fields: dict[str, Any], scale: float, rate: float
) -> None:
    algorithm = make(name, **fields)
    log, start = log_of(algorithm.facts.takes_late, scale, rate), x0(DIMENSION) * np.float32(1e-38)
    expected = applied(algorithm, log, start)
    assert_all_alike(replayed(algorithm, [log], start), expected)
    assert np.isfinite(expected["x"]).all() == (scale < 1)


@pytest.mark.slow
@each
@pytest.mark.parametrize("types", [ALL_NARROW])
def test_the_number_of_commits_folded_at_a_time_changes_no_bit(name: str, fields: dict[str, Any], types: Types) -> None:
    algorithm = make(name, **fields)
    log, start = log_of(algorithm.facts.takes_late), narrowed(x0(DIMENSION))
    at_once = replayed(algorithm, [log], start, types)
    assert_all_alike(replayed(algorithm, [log[:1], [], log[1:3], log[3:]], start, types), at_once)


def test_an_empty_model_and_an_empty_log_are_left_unchanged() -> None:
    algorithm, nothing = make("decomfl"), np.empty(0, np.float32)
    assert replayed(algorithm, [log_of(True)], nothing)["x"].size == 0
    assert_alike(replayed(algorithm, [[]], x0(DIMENSION))["x"], x0(DIMENSION))


# bfloat16


class Settling:
    """Directions that round a block's fields to their storage type at the start of each global step."""

    def __init__(self, source: Any, fields: Mapping[str, Vector], types: Types) -> None:
        self._source, self._fields, self._types = source, fields, types

    def accumulate(self, *arguments: Any, **keywords: Any) -> None:
        self.settle()
        self._source.accumulate(*arguments, **keywords)

    def settle(self) -> None:
        for name, field in self._fields.items():
            if self._types.get(name) is torch.bfloat16:
                field[:] = narrowed(field)


def settled(monkeypatch: pytest.MonkeyPatch, types: Types) -> None:
    """Make `apply` keep fields in the given types: the bfloat16 rule in terms of the reference."""
    fold = ScalarOnly._fold

    def folding(self: ScalarOnly, block: Any, backend: Any, commit: ScalarCommit, term: Term) -> None:
        settling = Settling(backend, block.fields, types)
        fold(self, block, settling, commit, term)  # type: ignore[arg-type]
        settling.settle()

    monkeypatch.setattr(ScalarOnly, "_fold", folding)
    monkeypatch.setattr(
        "seedbus.algorithms.scalar_only.base.fused", lambda *others: None
    )  # which does not go by `_fold`


@pytest.mark.slow
@each
@pytest.mark.parametrize("types", [{"x": torch.bfloat16}, ALL_NARROW])
def test_bfloat16_is_rounded_after_every_global_step(
    name: str, fields: dict[str, Any], types: Types, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = make(name, **fields)
    log, start = log_of(algorithm.facts.takes_late), narrowed(x0(DIMENSION))
    actual, wide = replayed(algorithm, [log], start, types), applied(algorithm, log, start)
    settled(monkeypatch, types)
    assert_all_alike(actual, applied(algorithm, log, start))
    once = {field: narrowed(wide[field]) if field in types else wide[field] for field in wide}
    assert differing(actual, once) > DIMENSION // 20  # a single rounding at the end gives other bits


def test_fields_of_other_lengths_are_refused() -> None:
    x, algorithm = torch.zeros(DIMENSION, device=DEVICE), make("hiso")
    rule = rule_of(algorithm)
    assert rule is not None
    with pytest.raises(ValueError, match="9 coordinates"):
        TritonReplay(algorithm.directions).fold(rule, {"x": x, "hessian": x[:9]}, replay_steps(log_of(False)))
