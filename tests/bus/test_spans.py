"""Sets of clients stored as spans."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from seedbus.bus.spans import SpanSet

SPANS = st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(st.tuples(st.booleans(), SPANS), max_size=12), SPANS, st.integers(0, 40))
def test_a_set_of_spans_behaves_as_the_set_of_its_numbers(
    steps: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int], count: int
) -> None:
    spans, plain = SpanSet(), set[int]()
    for is_added, (first, last) in steps:
        (spans.add if is_added else spans.discard)((first, last))
        (plain.update if is_added else plain.difference_update)(range(first, last + 1))
    listed = list(spans)
    assert [number for first, last in listed for number in range(first, last + 1)] == sorted(plain)
    assert spans.size == len(plain)
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(listed)), "they do not touch"
    assert spans.lacks(asked) == min(set(range(asked[0], asked[1] + 1)) - plain, default=None)
    gaps = {number for first, last in spans.gaps(60) for number in range(first, last + 1)}
    assert gaps == set(range(60)) - plain
    lowest = [number for first, last in spans.lowest(count) for number in range(first, last + 1)]
    assert lowest == sorted(plain)[:count]
