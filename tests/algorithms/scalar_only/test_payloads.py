"""Payloads of scalar-only algorithms: their size, their round trips, and the refusal of malformed bodies."""

from __future__ import annotations

import copy
import dataclasses
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest
from algorithm_cases import bits, over_the_wire, seed_of
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.algorithms.contract import BadPayload
from seedbus.algorithms.scalar_only import payloads as wire
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, ScalarPlan, Term
from seedbus.algorithms.scalar_only.precision import FORMATS, INT32, WIRE_FORMATS, Format

PLAN = ScalarPlan(3, 2, seed_of(3), 2, 5, float(np.float32(0.1)))


NUMBERS = np.random.default_rng(1).normal(size=9_999).astype(np.float32)


def scalars(steps: int, perturbations: int, start: int = 0) -> wire.Scalars:
    return NUMBERS[start % 9_000 :][: steps * perturbations].reshape(steps, perturbations)


def missed(rounds: int, steps: int = 1, perturbations: int = 10) -> list[ScalarCommit]:
    """Ordinary rounds: consecutive, of one shape and one learning rate."""
    return [
        ScalarCommit(r + 1, r, 0.5, (Term(r, seed_of(r), scalars(steps, perturbations, r)),)) for r in range(rounds)
    ]


UNEVEN = [
    ScalarCommit(1, 4, 0.5, (Term(4, 1, scalars(1, 3)), Term(1, 9, scalars(1, 2), 0.5))),
    ScalarCommit(2, 6, float(np.float32(0.1)), (Term(6, 2, scalars(2, 2)),)),
]
"""A late term, a round without a commit, and several shapes and rates: no column may be shortened."""


each_short_form = pytest.mark.parametrize("form", [FORMATS["float16"], FORMATS["bfloat16"]], ids=str)


# sizes


def test_fifty_missed_rounds_cost_little_more_than_their_seeds_and_scalars() -> None:
    packed = wire.pack_commits(missed(50))
    assert (packed.scalars, packed.seeds) == (500, 50)
    assert len(msgpack.packb(packed.body)) == 50 * (8 + 40) + 27 <= 2_450


@pytest.mark.parametrize(("rounds", "overhead"), [(1, 26), (64, 31), (65, 56), (4_096, 2_048), (10_000, 5_000)])
def test_the_overhead_of_a_catch_up_does_not_grow_within_a_segment(rounds: int, overhead: int) -> None:
    assert len(msgpack.packb(wire.pack_commits(missed(rounds)).body)) <= rounds * 48 + overhead


def test_a_plan_and_a_report_carry_one_seed_and_the_scalars() -> None:
    packed_plan, packed_report = wire.pack_plan(PLAN), wire.pack_report(scalars(1, 10))
    assert (packed_plan.seeds, packed_plan.scalars, packed_report.seeds, packed_report.scalars) == (1, 0, 0, 10)
    assert len(msgpack.packb(packed_plan.body)) == 18
    assert len(msgpack.packb(packed_report.body)) == 43


@each_short_form
def test_a_short_scalar_is_two_bytes_in_reports_and_in_catch_ups(form: Format) -> None:
    packed_report, caught_up = wire.pack_report(scalars(1, 10), form), wire.pack_commits(missed(50), form)
    assert packed_report.scalars == 10
    assert len(msgpack.packb(packed_report.body)) == 23
    assert len(msgpack.packb(caught_up.body)) == 50 * (8 + 20) + 27


# round trips


@each_short_form
def test_scalars_outside_the_format_are_rounded_and_others_are_unchanged(form: Format) -> None:
    for body in (wire.pack_report(scalars(2, 5), form).body, wire.pack_report(scalars(2, 5, 50), form).body):
        once = wire.unpack_report(over_the_wire(body), PLAN, form)
        again = wire.unpack_report(over_the_wire(wire.pack_report(once, form).body), PLAN, form)
        assert bits(once) == bits(again) and once.dtype == np.float32
    (commit,) = wire.unpack_commits(over_the_wire(wire.pack_commits(missed(1), form).body), form)
    assert bits(commit.terms[0].scalars[0]) == bits(form.rounded(scalars(1, 10)[0].astype(np.float64)))


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
rates = st.sampled_from([0.5, 0.25]) | numbers


@st.composite
def terms(draw: st.DrawFn, round: int, weight: float) -> Term:
    steps, perturbations = draw(st.tuples(st.integers(1, 3), st.integers(1, 4)))
    flat = draw(st.lists(numbers, min_size=steps * perturbations, max_size=steps * perturbations))
    return Term(
        round, draw(st.integers(0, 2**64 - 1)), np.array(flat, np.float32).reshape(steps, perturbations), weight
    )


@st.composite
def logs(draw: st.DrawFn) -> list[ScalarCommit]:
    """Commits with consecutive versions, arbitrary ascending rounds, and late terms of any weight."""
    version, round = draw(st.integers(1, 2**31)), draw(st.integers(0, 2**31))
    log = []
    for _ in range(draw(st.integers(1, 5))):
        late = [draw(terms(round - 1, draw(numbers))) for _ in range(draw(st.integers(0, 2)) if round else 0)]
        log.append(ScalarCommit(version, round, draw(rates), (draw(terms(round, 1.0)), *late)))
        version, round = version + 1, round + draw(st.integers(1, 3))
    return log


@pytest.mark.slow
@settings(max_examples=40)
@given(log=logs(), mutations=st.sampled_from([1, 1, 1, 14, 40]))
def test_any_commits_survive_a_round_trip(log: list[ScalarCommit], mutations: int) -> None:
    first = log[0].version
    many = [dataclasses.replace(commit, version=first + i) for i, commit in enumerate(log * mutations)]
    assert bits(wire.unpack_commits(over_the_wire(wire.pack_commits(many).body))) == bits(many)


@pytest.mark.parametrize("rounds", [0, 1, 63, 64, 65, 4_097])
def test_any_number_of_commits_survives_a_round_trip(rounds: int) -> None:
    log = missed(rounds, 2, 1)
    assert bits(wire.unpack_commits(over_the_wire(wire.pack_commits(log).body))) == bits(log)


@pytest.mark.parametrize("form", WIRE_FORMATS.values(), ids=WIRE_FORMATS)
def test_a_log_of_which_no_two_terms_are_alike_survives_a_round_trip_in_each_format(form: Format) -> None:
    def rounded(term: Term) -> Term:
        values = np.rint(term.scalars).astype(np.int32) if form is INT32 else term.scalars
        return dataclasses.replace(term, scalars=form.widen(form.narrow(values)))

    log = [dataclasses.replace(commit, terms=tuple(map(rounded, commit.terms))) for commit in UNEVEN]
    assert bits(wire.unpack_commits(over_the_wire(wire.pack_commits(log, form).body), form)) == bits(log)


@pytest.mark.parametrize(("seed", "shape"), [(0, (1, wire.REPORTABLE)), (2**64 - 1, (wire.REPORTABLE, 1))])
def test_a_plan_with_the_first_or_the_last_seed_and_as_many_scalars_as_a_report_holds_survives_a_round_trip(
    seed: int, shape: tuple[int, int]
) -> None:
    plan = ScalarPlan(3, 2, seed, *shape, 0.0)
    assert wire.unpack_plan(over_the_wire(wire.pack_plan(plan).body), 3, 2) == plan


def test_the_highest_round_and_version_survive_a_round_trip() -> None:
    last = ScalarCommit(2**32 - 1, 2**32 - 1, 0.5, (Term(2**32 - 1, 2**64 - 1, scalars(1, 1)),))
    assert bits(wire.unpack_commits(wire.pack_commits([last]).body)) == bits([last])


# malformed bodies


def segment(**columns: Any) -> list[Any]:
    """A catch-up of two commits with some columns replaced."""
    names = ("version", "counts", "rounds", "rates", "weights", "shapes", "seeds", "scalars")
    defaults = dict(zip(names, wire.pack_commits(missed(2, 1, 3)).body[0][0], strict=True))
    return [[list((defaults | columns).values())]]


def f4(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def u2(*values: int) -> bytes:
    return np.array(values, "<u2").tobytes()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "lists of segments"),
        ([7], "lists of segments"),
        ([[7]], "has 8 fields"),
        ([[[]]], "has 8 fields"),
        (segment(version=0), "a version is 0"),
        (segment(version=2**32 - 1), "a version is"),
        (segment(version=2**64), "a version is"),
        (segment(version=True), "is bool"),
        ([[*segment()[0], *segment()[0]]], "do not follow each other"),
        (segment(rounds=-1), "a round is -1"),
        (segment(rounds=2**32 - 1), "a round is"),
        (segment(rounds=1.0), "is float"),
        (segment(rounds=b"\0\0\0"), "rounds: 3 bytes where 8 belong"),
        (segment(counts=u2(2, 0)), "do not divide"),
        (segment(counts=u2(1)), "do not divide"),
        (segment(seeds=b"", scalars=b""), "seeds"),
        (segment(seeds=b"\0" * 8 * 65), "do not divide"),
        (segment(seeds=[1, 2]), "seeds"),
        (segment(rates=f4(0.5, 0.5, 0.5)), "η: 12 bytes where 8 belong"),
        (segment(rates=f4(float("nan"))), "η: a number that is not finite"),
        (segment(weights=f4(1.0, float("inf"))), "weights: a number that is not finite"),
        (segment(scalars=f4(1, 2, 3, 4, 5, float("nan"))), "scalars: a number that is not finite"),
        (segment(shapes=u2(0, 3), scalars=b""), "without scalars"),
        (segment(shapes=u2(1, 6, 1, 0)), "without scalars"),
        (segment(shapes=u2(65_535, 65_535)), "scalars: 24 bytes where 34358689800 belong"),
        (segment(scalars="text"), "scalars: str"),
    ],
)
def test_a_malformed_catch_up_is_refused_by_its_column(body: Any, complaint: str) -> None:
    with pytest.raises(BadPayload, match=complaint):
        wire.unpack_commits(body)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ([1, 1, 1], "has 4 fields"),
        ([2**64, 1, 1, f4(1)], "a seed is"),
        ([-1, 1, 1, f4(1)], "a seed is"),
        ([1, 0, 1, f4(1)], "K is 0"),
        ([1, 1, 65_536, f4(1)], "P is 65536"),
        ([1, 127, 126, f4(1)], "at most 16000"),
        ([1, 1, 1, f4()], "η: 0 bytes"),
        ([1, 1, 1, f4(float("-inf"))], "η: a number that is not finite"),
        ([1, 1, 1, 0.1], "η: float"),
    ],
)
def test_a_malformed_plan_is_refused_by_its_field(body: Any, complaint: str) -> None:
    with pytest.raises(BadPayload, match=complaint):
        wire.unpack_plan(body, 0, 0)


@pytest.mark.parametrize("body", [[], [f4(*range(9))], [f4(*range(11))], [b"", b""], [list(range(10))], {}, None])
def test_a_malformed_report_is_refused(body: Any) -> None:
    with pytest.raises(BadPayload):
        wire.unpack_report(body, PLAN)


def test_a_small_message_cannot_claim_a_large_memory() -> None:
    """Sixty-four commits of 65,535 × 65,535 scalars each, in six hundred bytes."""
    claim = [[[1, b"", 0, f4(1), b"", u2(65_535, 65_535), bytes(512), b""]]]
    tracemalloc.start()
    with pytest.raises(BadPayload):
        wire.unpack_commits(claim)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


JUNK: list[Any] = [
    *(None, True, -1, 0, 1, 2**16, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 2**64, 10**40, 0.0, -1.5, 1e300, float("nan")),
    *("", "text", b"", b"\0", b"\xff" * 4, b"\xff" * 8, bytes(512), [], [[]], [[[[]]]], [0] * 8, {}, {"a": 1}),
]


def places(body: Any) -> list[tuple[list[Any], int]]:
    """Return every element of a nested list as (containing list, index)."""
    elements = [(body, i) for i in range(len(body))]
    return elements + [place for element in body if isinstance(element, list) for place in places(element)]


def mutated(body: list[Any], draw: random.Random) -> list[Any]:
    """A body with one or two of its elements replaced, cut, grown, flipped, repeated, nested or left out."""
    body = copy.deepcopy(body)
    for _ in range(draw.randint(1, 2)):
        if not (elements := places(body)):
            break
        holder, i = draw.choice(elements)
        element = holder[i]
        if isinstance(element, bytes) and element and draw.random() < 0.6:
            cut = draw.randrange(len(element))
            flipped = element[:cut] + bytes([element[cut] ^ 1 << draw.randrange(8)]) + element[cut + 1 :]
            holder[i] = draw.choice(
                [element[:cut], element * 2, element + b"\0", flipped, flipped, b"\xff" * len(element)]
            )
        elif isinstance(element, int) and draw.random() < 0.3:
            holder[i] = element + draw.choice([-1, 1, 2**31, 2**32, -(2**40)])
        elif draw.random() < 0.25:
            holder[i : i + 1] = draw.choice([[], [element, element], [[element]]])
        else:
            holder[i] = copy.deepcopy(draw.choice(JUNK))
    return body


def fuzzed(body: list[Any], unpack: Callable[[Any], Any], pack: Callable[[Any], Any], mutations: int) -> int:
    """Return the number of refused mutations; accepted ones must survive a round trip."""
    draw, refused = random.Random(7), 0
    for _ in range(mutations):
        wrong = mutated(body, draw)
        try:
            accepted = unpack(wrong)
        except BadPayload:
            refused += 1
        else:
            assert bits(unpack(pack(accepted).body)) == bits(accepted), wrong
    return refused


@pytest.mark.slow
def test_ten_thousand_malformed_catch_ups_raise_bad_payload_and_nothing_else() -> None:
    for log, mutations in ((UNEVEN, 5_000), (missed(3), 4_000), (missed(66, 1, 1), 1_000)):
        refused = fuzzed(wire.pack_commits(log).body, wire.unpack_commits, wire.pack_commits, mutations)
        assert refused > mutations / 2


def test_ten_thousand_malformed_plans_and_reports_raise_bad_payload_and_nothing_else() -> None:
    body = wire.pack_plan(PLAN).body
    assert fuzzed(body, lambda wrong: wire.unpack_plan(wrong, 3, 2), wire.pack_plan, 5_000) > 2_500
    body = wire.pack_report(scalars(2, 5)).body
    assert fuzzed(body, lambda wrong: wire.unpack_report(wrong, PLAN), wire.pack_report, 5_000) > 2_500


@pytest.mark.few(1)
@each_short_form
def test_thousands_of_malformed_messages_of_short_scalars_raise_bad_payload_and_nothing_else(form: Format) -> None:
    def pack_commits(log: Any) -> Any:
        return wire.pack_commits(log, form)

    def pack_report(report: Any) -> Any:
        return wire.pack_report(report, form)

    for log in (missed(3), missed(66, 1, 1)):
        body = pack_commits(log).body
        assert fuzzed(body, lambda wrong: wire.unpack_commits(wrong, form), pack_commits, 1_000) > 500
    body = pack_report(scalars(2, 5)).body
    assert fuzzed(body, lambda wrong: wire.unpack_report(wrong, PLAN, form), pack_report, 2_000) > 500


@each_short_form
def test_an_infinity_or_a_nan_in_a_commit_is_refused(form: Format) -> None:
    for value in (np.inf, -np.inf, np.nan):
        spoiled = dataclasses.replace(missed(1)[0].terms[0], scalars=np.full((1, 10), value, np.float32))
        body = wire.pack_commits([dataclasses.replace(missed(1)[0], terms=(spoiled,))], form).body
        with pytest.raises(BadPayload, match="scalars: a number that is not finite"):
            wire.unpack_commits(body, form)
