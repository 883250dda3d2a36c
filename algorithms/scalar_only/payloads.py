"""The wire format of the scalar-only family: raw little-endian columns, whose lengths are checked when they are read.

    plan      [seed, K, P, η]
    report    [scalars]
    commits   segments of at most 64 commits in lists of at most 64 segments; a segment holds its columns:
              [first version, terms per commit, rounds, η, weights, shapes, seeds, scalars]

A column whose rows are all equal holds only one row. A column with the default (one term per commit, weight 1) is
empty, and consecutive rounds are a single number. So 50 missed rounds of 10 scalars take little more space than 50
seeds and 500 scalars.

Scalars are in the run's format (scalar_only.precision). It is not sent, because both ends know the scenario. Signs are
packed eight to a byte, the first in the highest bit, and the last byte is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.contract import BadPayload, Packed
from seedbus.algorithms.scalar_only.precision import FLOAT32, SIGN, Format

SEGMENT = 64  # commits in a segment, and segments in a list, at most
_SHORT_REPORT = 1024  # bytes of a report that is read with others
MOST_TERMS = 2**16 - 1  # of a commit
REPORTABLE = 16_000  # scalars in a report at most: they fit the 64 KiB that a server accepts from a client
Scalars = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ScalarPlan:
    """The instructions for the participants of a round.

    Attributes:
        version: the version from which local steps start.
        seed: 64 bits that key the directions.
        steps: local steps, K.
        perturbations: scalars per local step: P, one a direction, or 2P with second differences.
        learning_rate: η, a float32 value.
    """

    round: int
    version: int
    seed: int
    steps: int
    perturbations: int
    learning_rate: float

    @property
    def shape(self) -> tuple[int, int]:
        return self.steps, self.perturbations


@dataclass(frozen=True, slots=True)
class Term:
    """The gradient scalars of one round in a commit.

    Attributes:
        seed: 64 bits that key the directions.
        scalars: float32 [K, P], rounded to the run's format; with `arithmetic: integer` the numbers n, int32 [K, P].
        weight: their weight in the commit.
    """

    round: int
    seed: int
    scalars: NDArray[Any]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class ScalarCommit:
    """One transition of every replica. Without late reports it has one term, of weight 1."""

    version: int
    round: int
    learning_rate: float
    terms: tuple[Term, ...]

    def effect(self, term: Term) -> tuple[bool, float, float]:
        """Return how a term is folded: whether it is of the commit's own round, the weight of its scalars, and its η.

        The weight of late reports is part of η, because they move only x and change neither momentum nor H.
        """
        if term.round == self.round:
            return True, term.weight, self.learning_rate
        return False, 1.0, float(np.float32(self.learning_rate * term.weight))


def rows(reports: Mapping[int, Scalars]) -> NDArray[np.float64]:
    """Return reports as rows, float64 [clients, K·P], clients in ascending order."""
    joined = np.concatenate([reports[client] for client in sorted(reports)])  # which asks less of each than np.stack
    return joined.reshape(len(reports), -1).astype(np.float64)


def pack_plan(plan: ScalarPlan) -> Packed:
    return Packed([plan.seed, plan.steps, plan.perturbations, column([plan.learning_rate], "<f4")], seeds=1)


def unpack_plan(body: Any, round: int, version: int) -> ScalarPlan:
    seed, steps, perturbations, rate = fields(body, 4, "a plan")
    whole(seed, "a seed", 0, 2**64)
    if whole(steps, "K", 1, 2**16) * whole(perturbations, "P", 1, 2**16) > REPORTABLE:
        raise BadPayload(f"K × P is {steps} × {perturbations}; a report holds at most {REPORTABLE} scalars")
    learning_rate = float(_finite(read(rate, "<f4", 1, "η"), "η")[0])
    return ScalarPlan(round, version, seed, steps, perturbations, learning_rate)


def pack_report(scalars: Scalars, form: Format = FLOAT32) -> Packed:
    return Packed([_pack_scalars(scalars, form)], scalars=scalars.size)


def unpack_report(body: Any, plan: ScalarPlan, form: Format = FLOAT32) -> Scalars:
    """Unpack a report. NaN and Inf pass here: `check` refuses them, with a reason that is counted."""
    (scalars,) = fields(body, 1, "a report")
    steps, perturbations = plan.steps, plan.perturbations
    return _read_scalars(scalars, steps * perturbations, form).reshape(steps, perturbations)


def unpack_reports(bodies: Sequence[Any], plan: ScalarPlan, form: Format, most: float) -> list[Scalars | None]:
    """Unpack short reports at once. None stands for one that is not, and for one whose squares do not add up to `most`.

    Args:
        bodies: the reports' bodies, of any form.
        plan: their plan.
        form: their format.
        most: the largest sum of squares; no sum of NaN or Inf is below it.
    """
    steps, perturbations = plan.steps, plan.perturbations
    size = steps * perturbations * form.width
    if form is SIGN or size > _SHORT_REPORT:
        return [None] * len(bodies)
    columns = [
        body[0] if len(body) == 1 and type(body[0]) is bytes and len(body[0]) == size else b"" for body in bodies
    ]
    values = form.widen(read(b"".join(columns), form.dtype, None, "scalars")).reshape(-1, steps, perturbations)
    with np.errstate(all="ignore"):  # what overflows is not sound
        are_sound = (np.einsum("rkp,rkp->r", values, values) <= most).tolist()
    reports = iter([report if is_sound else None for report, is_sound in zip(values, are_sound, strict=True)])
    return [next(reports) if column else None for column in columns]


def pack_commits(commits: Sequence[ScalarCommit], form: Format = FLOAT32) -> Packed:
    """Pack commits with consecutive versions. The first term of each is of its own round."""
    segments = [_pack_segment(commits[start : start + SEGMENT], form) for start in range(0, len(commits), SEGMENT)]
    pages = [segments[start : start + SEGMENT] for start in range(0, len(segments), SEGMENT)]
    terms = [term for commit in commits for term in commit.terms]
    return Packed(pages, scalars=sum(term.scalars.size for term in terms), seeds=len(terms))


def unpack_commits(body: Any, form: Format = FLOAT32) -> list[ScalarCommit]:
    if not isinstance(body, list) or not all(isinstance(page, list) for page in body):
        raise BadPayload("commits are not lists of segments")
    commits: list[ScalarCommit] = []
    for segment in chain.from_iterable(body):
        more = _unpack_segment(segment, form)
        if commits and more[0].version != commits[-1].version + 1:
            raise BadPayload("commits do not follow each other")
        commits += more
    return commits


def _pack_segment(commits: Sequence[ScalarCommit], form: Format) -> list[Any]:
    terms = [term for commit in commits for term in commit.terms]
    counts = [len(commit.terms) for commit in commits]
    rounds = [term.round for term in terms]
    is_consecutive = rounds == list(range(rounds[0], rounds[0] + len(rounds)))
    weights = [term.weight for term in terms]
    return [
        commits[0].version,
        b"" if set(counts) == {1} else column(counts, "<u2"),
        rounds[0] if is_consecutive else column(rounds, "<u4"),
        _once([commit.learning_rate for commit in commits], "<f4"),
        b"" if set(weights) == {1.0} else column(weights, "<f4"),
        _once([number for term in terms for number in term.scalars.shape], "<u2", width=2),
        column([term.seed for term in terms], "<u8"),
        _pack_scalars(np.concatenate([term.scalars.ravel() for term in terms]), form),
    ]


def _unpack_segment(segment: Any, form: Format) -> list[ScalarCommit]:
    """Return a segment's commits, at least one, whose versions follow each other."""
    version, counts, rounds, rates, weights, shapes, seeds, scalars = fields(segment, 8, "a segment")
    if not isinstance(seeds, bytes) or not seeds or len(seeds) % 8:
        raise BadPayload("a segment's seeds are not a column of 64-bit numbers")
    total = len(seeds) // 8
    per_commit = [1] * total if counts == b"" else read(counts, "<u2", None, "terms per commit").tolist()
    if sum(per_commit) != total or 0 in per_commit or len(per_commit) > SEGMENT:
        raise BadPayload(f"a segment's {total} terms do not divide into its {len(per_commit)} commits")
    if isinstance(rounds, bytes):
        of_round = read(rounds, "<u4", total, "rounds").tolist()
    else:
        of_round = list(range(whole(rounds, "a round", 0, 2**32 - total + 1), rounds + total))
    rates = _finite(_spread(rates, "<f4", len(per_commit), "η"), "η").tolist()
    weight = [1.0] * total if weights == b"" else _finite(read(weights, "<f4", total, "weights"), "weights").tolist()
    shape = _spread(shapes, "<u2", total, "shapes", width=2).reshape(total, 2).tolist()
    if min(map(min, shape)) == 0:
        raise BadPayload("shapes: a term without scalars")
    seed = read(seeds, "<u8", total, "seeds").tolist()
    flat = _finite(_read_scalars(scalars, sum(k * p for k, p in shape), form), "scalars")
    of_term: Iterable[NDArray[Any]]
    if shape.count(shape[0]) == total:
        of_term = flat.reshape(total, *shape[0])  # at once: a lagging client reads tens of thousands
    else:
        ends = np.cumsum([k * p for k, p in shape]).tolist()
        of_term = [flat[end - k * p : end].reshape(k, p) for end, (k, p) in zip(ends, shape, strict=True)]
    terms = map(Term, of_round, seed, of_term, weight)
    versions = range(whole(version, "a version", 1, 2**32 - len(per_commit) + 1), version + len(per_commit))
    tuples = zip(terms) if counts == b"" else [tuple(islice(terms, count)) for count in per_commit]
    return [ScalarCommit(at, its[0].round, rate, its) for at, rate, its in zip(versions, rates, tuples, strict=True)]


def _pack_scalars(scalars: NDArray[Any], form: Format) -> bytes:
    stored = form.narrow(scalars)
    return np.packbits(stored).tobytes() if form is SIGN else stored.astype(form.dtype, copy=False).tobytes()


def _read_scalars(packed: Any, count: int, form: Format) -> NDArray[Any]:
    """Return the values that `_pack_scalars` has packed, [count]."""
    if form is not SIGN:
        return form.widen(read(packed, form.dtype, count, "scalars"))
    bits = np.unpackbits(read(packed, "u1", -(-count // 8), "scalars"))
    if bits[count:].any():
        raise BadPayload(f"scalars: bits after the last of {count} signs")
    return form.widen(bits[:count])


def column(values: Any, dtype: str | np.dtype[Any]) -> bytes:
    return np.asarray(values, dtype=dtype).tobytes()


def _once(values: Sequence[float], dtype: str, width: int = 1) -> bytes:
    """Return a column, or only its first row of `width` numbers if all its rows are equal."""
    rows = column(values, dtype)
    row = rows[: np.dtype(dtype).itemsize * width]
    return row if rows == row * (len(values) // width) else rows


def _spread(column: Any, dtype: str, rows: int, what: str, width: int = 1) -> NDArray[Any]:
    """Return all rows of a column, flat, that `_once` may have shortened to one."""
    row_bytes = np.dtype(dtype).itemsize * width
    repeated = column * rows if isinstance(column, bytes) and len(column) == row_bytes else column
    return read(repeated, dtype, rows * width, what)


def read(column: Any, dtype: str | np.dtype[Any], count: int | None, what: str) -> NDArray[Any]:
    if not isinstance(column, bytes):
        raise BadPayload(f"{what}: {type(column).__name__} where a byte string belongs")
    size, native = _types(dtype)
    if len(column) % size or (count is not None and len(column) != count * size):
        expected = f"{count * size}" if count is not None else f"a multiple of {size}"
        raise BadPayload(f"{what}: {len(column)} bytes where {expected} belong")
    return np.frombuffer(column, dtype).astype(native)


@cache
def _types(dtype: str | np.dtype[Any]) -> tuple[int, np.dtype[Any]]:
    """Return the bytes per element of a dtype, and the dtype in native byte order."""
    return np.dtype(dtype).itemsize, np.dtype(dtype).newbyteorder("=")


def _finite(numbers: NDArray[Any], what: str) -> NDArray[Any]:
    if not np.isfinite(numbers).all():
        raise BadPayload(f"{what}: a number that is not finite")
    return numbers


def fields(body: Any, count: int, what: str) -> list[Any]:
    if not isinstance(body, list) or len(body) != count:
        size = len(body) if isinstance(body, list) else type(body).__name__
        raise BadPayload(f"{what} has {count} fields, not {size}")
    return body


def whole(value: Any, what: str, lowest: int, limit: int) -> int:
    if type(value) is not int:
        raise BadPayload(f"{what} is {type(value).__name__}, not a whole number")
    if not lowest <= value < limit:
        raise BadPayload(f"{what} is {value}, outside {lowest} … {limit - 1}")
    return value
