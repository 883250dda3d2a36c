"""The wire format of algorithms with a pool of seeds: pairs of an index into the pool and a number.

    report    [indices, scalars]                                        K·P of each
    commits   segments of at most 64 commits in lists of at most 64 segments; a segment:
              [first version, rounds, pairs per commit, indices, numbers]
    sum       [version before it, version after it, round, width, indices, numbers]

Indices are ascending within a commit, two bytes each. A sum's indices are a bitmap of the pool where that is shorter.
Numbers are whole, little-endian, in two's complement, as narrow as the largest of a segment or sum allows. So what a
client missed takes at most S numbers and S/8 bytes, however much it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.contract import BadPayload
from seedbus.algorithms.scalar_only.payloads import SEGMENT, Scalars, column, fields, read, whole
from seedbus.algorithms.scalar_only.precision import Format

Indices = NDArray[Any]
"""Indices into the pool, uint16."""
Numbers = NDArray[Any]
"""Whole numbers, int64."""


@dataclass(frozen=True, slots=True)
class PoolReport:
    """What a client measured.

    Attributes:
        indices: the direction of each scalar, [K, P].
        scalars: float32 [K, P], rounded to the run's format.
    """

    indices: Indices
    scalars: Scalars


@dataclass(frozen=True, slots=True)
class PoolCommit:
    """One transition of every replica, or the sum of several in a row.

    Attributes:
        base: the version before it.
        version: the version after it; base + 1 unless it is a sum.
        round: the round of the (last) commit.
        indices: of the directions that it moves x along, ascending, [n].
        numbers: by how many units, none of them 0, [n].
    """

    base: int
    version: int
    round: int
    indices: Indices
    numbers: Numbers


def added(indices: Indices, numbers: Numbers) -> tuple[Indices, Numbers]:
    """Return the sum of numbers of each index, by ascending index, without sums of 0."""
    found, which = np.unique(indices, return_inverse=True)
    sums = np.zeros(found.size, np.int64)
    np.add.at(sums, which.ravel(), numbers)
    return found[sums != 0], sums[sums != 0]


def summed(commits: Sequence[PoolCommit]) -> PoolCommit:
    """Return the sum of commits that follow each other, at least one."""
    indices, numbers = (
        np.concatenate([getattr(commit, name) for commit in commits]) for name in ("indices", "numbers")
    )
    return PoolCommit(commits[0].base, commits[-1].version, commits[-1].round, *added(indices, numbers))


def pack_report(report: PoolReport, form: Format) -> list[Any]:
    return [column(report.indices, "<u2"), column(form.narrow(report.scalars), form.dtype)]


def unpack_report(body: Any, shape: tuple[int, int], form: Format) -> PoolReport:
    indices, scalars = fields(body, 2, "a report")
    count = shape[0] * shape[1]
    return PoolReport(
        read(indices, "<u2", count, "indices").reshape(shape),
        form.widen(read(scalars, form.dtype, count, "scalars")).reshape(shape),
    )


def pack_commits(commits: Sequence[PoolCommit]) -> list[Any]:
    segments = [_pack_segment(commits[start : start + SEGMENT]) for start in range(0, len(commits), SEGMENT)]
    return [segments[start : start + SEGMENT] for start in range(0, len(segments), SEGMENT)]


def pack_sum(commit: PoolCommit, pool: int) -> list[Any]:
    indices = column(commit.indices, "<u2")
    if len(indices) > -(-pool // 8):
        bits = np.zeros(pool, np.bool_)
        bits[commit.indices] = True
        indices = np.packbits(bits, bitorder="little").tobytes()
    width = width_of(commit.numbers)
    return [commit.base, commit.version, commit.round, width, indices, _narrow(commit.numbers, width)]


def unpack_commits(body: Any, pool: int) -> list[PoolCommit]:
    """Unpack what `pack_commits` or `pack_sum` packed."""
    if isinstance(body, list) and body and type(body[0]) is int:
        commits = [_unpack_sum(body, pool)]
    elif isinstance(body, list) and all(isinstance(page, list) for page in body):
        commits = [commit for page in body for segment in page for commit in _unpack_segment(segment)]
    else:
        raise BadPayload("commits are neither lists of segments nor a sum")
    if any(later.base != earlier.version for earlier, later in pairwise(commits)):
        raise BadPayload("commits do not follow each other")
    for commit in commits:
        indices = commit.indices.astype(np.int64)
        if indices.size and (indices[-1] >= pool or (np.diff(indices) <= 0).any()):
            raise BadPayload(f"indices that do not ascend, or are beyond a pool of {pool}")
    return commits


def width_of(numbers: Numbers) -> int:
    """Return the fewest bytes, at least 1, that hold each of these numbers in two's complement."""
    if not numbers.size:
        return 1
    return max(max(int(numbers.max()), 0).bit_length(), (~min(int(numbers.min()), -1)).bit_length()) // 8 + 1


def _pack_segment(commits: Sequence[PoolCommit]) -> list[Any]:
    numbers = np.concatenate([commit.numbers for commit in commits])
    return [
        commits[0].version,
        column([commit.round for commit in commits], "<u4"),
        column([commit.numbers.size for commit in commits], "<u2"),
        b"".join(column(commit.indices, "<u2") for commit in commits),
        _narrow(numbers, width_of(numbers)),
    ]


def _unpack_segment(segment: Any) -> Iterator[PoolCommit]:
    version, rounds, counts, indices, numbers = fields(segment, 5, "a segment")
    of_round = read(rounds, "<u4", None, "rounds").tolist()
    per_commit = read(counts, "<u2", len(of_round), "pairs per commit").tolist()
    if not 0 < len(of_round) <= SEGMENT:
        raise BadPayload(f"a segment of {len(of_round)} commits")
    whole(version, "a version", 1, 2**32 - len(of_round) + 1)
    total = sum(per_commit)
    index, number = read(indices, "<u2", total, "indices"), _widen(numbers, total)
    first = 0
    for place, (round, count) in enumerate(zip(of_round, per_commit, strict=True)):
        part = slice(first, first + count)
        yield PoolCommit(version + place - 1, version + place, round, index[part], number[part])
        first += count


def _unpack_sum(body: list[Any], pool: int) -> PoolCommit:
    base, version, round, width, indices, numbers = fields(body, 6, "a sum")
    whole(version, "a version", 1, 2**32)
    whole(base, "the version before a sum", 0, version)
    whole(round, "a round", 0, 2**32)
    whole(width, "the width of a number", 1, 9)
    if not isinstance(numbers, bytes) or len(numbers) % width:
        raise BadPayload(f"a sum's numbers are not of {width} bytes each")
    count = len(numbers) // width
    if 2 * count > -(-pool // 8):
        bits = np.unpackbits(read(indices, "u1", -(-pool // 8), "indices"), bitorder="little")
        index = np.flatnonzero(bits).astype(np.uint16)
        if index.size != count:
            raise BadPayload(f"a sum of {index.size} indices and {count} numbers")
    else:
        index = read(indices, "<u2", count, "indices")
    return PoolCommit(base, version, round, index, _widen(numbers, count))


def _narrow(numbers: Numbers, width: int) -> bytes:
    return numbers.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()


def _widen(numbers: Any, count: int) -> Numbers:
    """Return numbers of equal width, which follows from their count."""
    sizes = [count * width for width in range(1, 9)]
    if not isinstance(numbers, bytes) or len(numbers) not in sizes:
        raise BadPayload(f"{count} numbers that have not 1 to 8 bytes each")
    wide = np.zeros((count, 8), np.uint8)
    if count:
        narrow = np.frombuffer(numbers, np.uint8).reshape(count, -1)
        wide[:, : narrow.shape[1]] = narrow
        wide[:, narrow.shape[1] :] = np.where(narrow[:, -1:] & 0x80, 0xFF, 0)
    return wide.view("<i8").ravel().astype(np.int64)
