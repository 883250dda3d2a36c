"""The figures of `gpu.py` as tables in Markdown, and their place in a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpu_kernels import Figure as Kernel
from gpu_replayed import Replayed
from gpu_rounds import Figure, Turn
from rows import number

NONE = "–"
FULL = "out of memory"


def page(device: str, found: Mapping[str, Sequence[Any]]) -> str:
    """Return the tables of the parts that were measured, under the device's name."""
    tables: dict[str, Callable[[Any], Iterator[str]]]
    tables = {"kernels": kernels, "rounds": rounds, "crowd": crowd, "replayed": replayed}
    parts = ["\n".join(table(found[part])) for part, table in tables.items() if found.get(part)]
    return "\n\n".join([f"Measured on: {device}.", *parts])


def kernels(figures: Sequence[Kernel]) -> Iterator[str]:
    yield from head("vector", "kernel", "ms", "10⁹ coordinates/s", "GB/s", "of a copy", "peak GiB")
    for it in figures:
        rates = (number(it.gigacoordinates_per_second), number(it.gigabytes_per_second), f"{it.of_a_copy:.0%}")
        yield cells(it.model, it.case, number(it.milliseconds), *rates, number(it.peak_gibibytes))


def rounds(figures: Sequence[Figure]) -> Iterator[str]:
    yield from head(
        "network (d)", "clients, P, batch", "Seedbus: steps/s", "peak GiB", "plain: steps/s", "peak GiB", "times faster"
    )
    for it in figures:
        work = it.work
        name = f"{work.name}{', stacked' * (work.forward == 'stacked')} ({it.dimension:,})"
        yield cells(
            name, f"{work.cohort} of {work.clients}, {work.perturbations}, {work.batch}", *sides(it), times_faster(it)
        )


def crowd(figures: Sequence[Figure]) -> Iterator[str]:
    yield from head(
        "clients of a round", "network", "Seedbus: clients/s", "peak GiB", "plain: clients/s", "peak GiB", "faster"
    )
    for it in figures:
        yield cells(f"{it.work.cohort:,}", f"{it.work.name}, {it.work.forward}", *sides(it), times_faster(it))


def replayed(figures: Sequence[Replayed]) -> Iterator[str]:
    for it in figures:
        what = "the same digest" if it.is_same else "another digest"
        yield (
            f"`lm/opt-125m-sst2-decomfl` with random weights (d = {it.dimension:,}), {it.rounds} rounds on {it.device} "
            f"in {number(it.seconds)} s; a process that sees no GPU replayed them in {number(it.replay_seconds)} s to "
            f"{what}: {it.digest[:16]}… and {it.replayed[:16]}…"
        )


def sides(figure: Figure) -> Iterator[str]:
    """Yield steps a second and peak memory of Seedbus, then of plain torch."""
    for turn in (figure.ours, figure.plain):
        yield FULL if turn is None else number(figure.work.cohort / turn.seconds)
        yield NONE if turn is None or not turn.peak else number(turn.peak / 2**30)


def times_faster(figure: Figure) -> str:
    ours: Turn | None = figure.ours
    return NONE if ours is None or figure.plain is None else f"{number(figure.plain.seconds / ours.seconds)}×"


def head(*names: str) -> Iterator[str]:
    yield cells(*names)
    yield cells("---", "---", *["---:"] * (len(names) - 2))


def cells(*texts: str) -> str:
    return f"| {' | '.join(texts)} |"


def put_between(text: str, begin: str, end: str, new: str) -> str:
    """Return a page with what is between two lines replaced. Raises `ValueError` if it does not have both once."""
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"found no place for the tables; expected {begin} and, after it, {end}, once each")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{new}\n{end}{rest.split(end)[1]}"
