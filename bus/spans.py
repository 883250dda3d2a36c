"""Sets of clients as spans: what a process wishes for, is offered and hosts, at a cost by spans and not by clients."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

Span = tuple[int, int]
"""The first and the last of neighbouring clients."""


class SpanSet:
    """A set of whole numbers, kept as ascending spans that do not touch. Adding and discarding a span cost about the
    logarithm of how many there are, and the spans that change."""

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
        """How many numbers. (A length would be taken for that of the list of spans.)"""
        return sum(last - first + 1 for first, last in self._spans)

    def copy(self) -> SpanSet:
        other = SpanSet()
        other._spans = self._spans.copy()
        return other

    def add(self, span: Span) -> None:
        first, last = span
        start, end = self._touched(first - 1, last + 1)
        if start < end:
            first, last = min(first, self._spans[start][0]), max(last, self._spans[end - 1][1])
        self._spans[start:end] = [(first, last)]

    def discard(self, span: Span) -> None:
        first, last = span
        start, end = self._touched(first, last)
        if start < end:
            left, right = self._spans[start][0], self._spans[end - 1][1]
            self._spans[start:end] = [
                *([(left, first - 1)] if left < first else []),
                *([(last + 1, right)] if right > last else []),
            ]

    def lacks(self, span: Span) -> int | None:
        """The lowest number of a span that is not in the set; None if all are."""
        first, last = span
        start, end = self._touched(first, last)
        if start == end or self._spans[start][0] > first:
            return first
        here = self._spans[start][1]
        return None if here >= last else here + 1

    def within(self, span: Span) -> list[Span]:
        """The parts of a span that are in the set."""
        first, last = span
        start, end = self._touched(first, last)
        return [(max(first, here), min(last, there)) for here, there in self._spans[start:end]]

    def gaps(self, end: int = 2**32) -> Iterator[Span]:
        """The spans of what is below `end` and not in the set."""
        begin = 0
        for first, last in self._spans:
            if begin < first:
                yield begin, first - 1
            begin = last + 1
        if begin < end:
            yield begin, end - 1

    def lowest(self, count: int) -> tuple[Span, ...]:
        """The lowest `count` numbers, or all, if there are not so many."""
        found = []
        for first, last in self._spans:
            if count <= 0:
                break
            found.append((first, min(last, first + count - 1)))
            count -= last - first + 1
        return tuple(found)

    def _touched(self, first: int, last: int) -> tuple[int, int]:
        """Where those spans begin and end in the list that have a number of first … last."""
        start = bisect_left(self._spans, first, key=_last)
        end = start
        while end < len(self._spans) and self._spans[end][0] <= last:
            end += 1
        return start, end


def merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    """The same clients as spans that ascend and do not touch."""
    return tuple(SpanSet(spans))


def _last(span: Span) -> int:
    return span[1]
