"""Sets of clients as spans, for what a process requests, is offered and hosts. Costs grow with spans, not clients."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

Span = tuple[int, int]
"""The first and the last of consecutive clients, both included."""


class SpanSet:
    """A set of integers, kept as ascending spans with gaps between them.

    Adding or discarding a span costs the logarithm of the number of spans, plus the spans that change.
    """

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._spans: list[Span] = []
        for span in spans:
            self.add(span)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __bool__(self) -> bool:
        return bool(self._spans)

    @property
    def size(self) -> int:
        """Number of integers in the set; there is no `len`, which could be taken for the number of spans."""
        return sum(last - first + 1 for first, last in self._spans)

    def copy(self) -> SpanSet:
        other = SpanSet()
        other._spans = self._spans.copy()
        return other

    def add(self, span: Span) -> None:
        first, last = span
        start, end = self._overlapping(first - 1, last + 1)
        if start < end:
            first, last = min(first, self._spans[start][0]), max(last, self._spans[end - 1][1])
        self._spans[start:end] = [(first, last)]

    def discard(self, span: Span) -> None:
        first, last = span
        start, end = self._overlapping(first, last)
        if start < end:
            left, right = self._spans[start][0], self._spans[end - 1][1]
            self._spans[start:end] = [
                *([(left, first - 1)] if left < first else []),
                *([(last + 1, right)] if right > last else []),
            ]

    def lacks(self, span: Span) -> int | None:
        """Return the lowest number of a span that is not in the set; None if all of them are."""
        first, last = span
        start, end = self._overlapping(first, last)
        if start == end or self._spans[start][0] > first:
            return first
        covered_to = self._spans[start][1]
        return None if covered_to >= last else covered_to + 1

    def within(self, span: Span) -> list[Span]:
        """Return the parts of a span that are in the set."""
        first, last = span
        start, end = self._overlapping(first, last)
        return [(max(first, left), min(last, right)) for left, right in self._spans[start:end]]

    def gaps(self, end: int = 2**32) -> Iterator[Span]:
        """Yield the spans of the numbers below `end` that are not in the set."""
        begin = 0
        for first, last in self._spans:
            if begin < first:
                yield begin, first - 1
            begin = last + 1
        if begin < end:
            yield begin, end - 1

    def lowest(self, count: int) -> tuple[Span, ...]:
        """Return the lowest `count` numbers of the set as spans; all of them if there are fewer."""
        lowest = []
        for first, last in self._spans:
            if count <= 0:
                break
            lowest.append((first, min(last, first + count - 1)))
            count -= last - first + 1
        return tuple(lowest)

    def _overlapping(self, first: int, last: int) -> tuple[int, int]:
        """The slice (start, end) of the list of spans that contain a number of first … last."""
        start = bisect_left(self._spans, first, key=_last)
        end = start
        while end < len(self._spans) and self._spans[end][0] <= last:
            end += 1
        return start, end


def merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return the same clients as ascending spans with gaps between them."""
    return tuple(SpanSet(spans))


def clients_in(spans: Iterable[Span]) -> list[int]:
    """Return the clients of spans, one by one."""
    return [client for first, last in spans for client in range(first, last + 1)]


def spans_in(text: str, end: int) -> tuple[Span, ...] | None:
    """Return the spans of a text such as 0-24,40, merged; None if it is no such text, or goes beyond `end` − 1."""
    spans = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,8})(?:-([0-9]{1,8}))?", part)
        if not match or not int(match[1]) <= int(match[2] or match[1]) < end:
            return None
        spans.append((int(match[1]), int(match[2] or match[1])))
    return merged(spans)


def _last(span: Span) -> int:
    return span[1]
