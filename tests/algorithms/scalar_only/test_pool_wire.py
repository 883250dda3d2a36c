"""Reports and commits of a pool of directions on the wire: at the limits of their formats, and false ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from algorithm_cases import bits, over_the_wire

from seedbus.algorithms.contract import BadPayload
from seedbus.algorithms.scalar_only.payloads import SEGMENT
from seedbus.algorithms.scalar_only.pool import (
    PoolCommit,
    PoolReport,
    pack_commits,
    pack_report,
    pack_sum,
    unpack_commits,
    unpack_report,
)
from seedbus.algorithms.scalar_only.precision import FORMATS


def commit(numbers: Mapping[int, int], base: int = 3, version: int = 9, round: int = 12) -> PoolCommit:
    indices = sorted(numbers)
    values = np.array([numbers[index] for index in indices], np.int64)
    return PoolCommit(base, version, round, np.array(indices, np.uint16), values)


def chain(length: int) -> list[PoolCommit]:
    """Commits that follow each other; every third one moves nothing."""
    return [commit({n % 7: n - 1, 9: -n} if n % 3 else {}, n, n + 1, 2 * n) for n in range(length)]


@pytest.mark.parametrize("pool", [96, 97, 104])
def test_the_indices_of_a_sum_take_two_bytes_each_or_a_bit_for_each_of_the_pool(pool: int) -> None:
    for count in range(pool + 1):
        total = commit({index: 1 + index for index in range(pool - count, pool)})
        body = pack_sum(total, pool)
        assert len(body[4]) == min(2 * count, -(-pool // 8))
        assert bits(unpack_commits(over_the_wire(body), pool)) == bits([total])


@pytest.mark.parametrize("width", range(1, 9))
def test_the_numbers_of_a_commit_take_the_fewest_bytes_that_hold_them(width: int) -> None:
    least = 2 ** (8 * width - 9) if width > 1 else 1
    for number in (least, -least - (width > 1), 2 ** (8 * width - 1) - 1, -(2 ** (8 * width - 1))):
        for numbers in ({5: number}, {4: 1, 5: number}, {4: -1, 5: number}):
            alone = commit(numbers, 0, 1)
            sum_body, (((*_, packed),),) = pack_sum(alone, 99), pack_commits([alone])
            assert sum_body[3] == width and len(packed) == len(sum_body[5]) == width * len(numbers)
            for body in (sum_body, pack_commits([alone])):
                assert bits(unpack_commits(over_the_wire(body), 99)) == bits([alone])


@pytest.mark.parametrize("length", [0, 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT])
def test_any_number_of_commits_survives_the_wire(length: int) -> None:
    commits = chain(length)
    assert bits(unpack_commits(over_the_wire(pack_commits(commits)), 10)) == bits(commits)


def test_versions_and_rounds_have_32_bits() -> None:
    last = 2**32 - 1
    newest = commit({1: 2}, last - 1, last, last)
    for each in (newest, commit({1: 2}, 0, 1, 0)):
        for body in (pack_sum(each, 9), pack_commits([each])):
            assert bits(unpack_commits(over_the_wire(body), 9)) == bits([each])
    for beyond in (commit({1: 2}, last, last + 1, 0), commit({1: 2}, 0, 1, last + 1)):
        with pytest.raises(BadPayload):
            unpack_commits(pack_sum(beyond, 9), 9)
    with pytest.raises(BadPayload):
        unpack_commits(pack_commits([commit({1: 2}, last, last + 1, 0)]), 9)


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (2, 3)])
def test_a_report_survives_the_wire_in_the_shape_of_its_plan(shape: tuple[int, int]) -> None:
    count = shape[0] * shape[1]
    indices, scalars = np.arange(count, dtype=np.uint16), np.arange(count, dtype=np.float32) / np.float32(4)
    report = PoolReport(indices.reshape(shape), scalars.reshape(shape))
    body = pack_report(report, FORMATS["float16"])
    assert bits(unpack_report(over_the_wire(body), shape, FORMATS["float16"])) == bits(report)
    with pytest.raises(BadPayload):
        unpack_report([*body, b""], shape, FORMATS["float16"])


def refused() -> dict[str, Any]:
    first, second, third = chain(3)
    ((segment,),) = pack_commits([second])
    long = [[[1, bytes(4 * (SEGMENT + 1)), bytes(2 * (SEGMENT + 1)), b"", b""]]]
    return {
        "a gap": [[*pack_commits([first])[0], *pack_commits([third])[0]]],
        "a repetition": [[segment, segment]],
        "numbers in a text": [[[*segment[:4], "ab"]]],
        "a number of three bytes where two are announced": [0, 1, 0, 2, b"\1\0", b"\1\2\3"],
        "numbers of nine bytes": [[[*segment[:4], bytes(18)]]],
        "equal indices": [[[*segment[:3], b"\1\0\1\0", segment[4]]]],
        "descending indices": [[[*segment[:3], b"\2\0\1\0", segment[4]]]],
        "an index beyond the pool": [[[*segment[:3], b"\1\0\12\0", segment[4]]]],
        "a segment that is too long": long,
        "a bit too many": [0, 1, 0, 1, b"\xff\0", b"\1" * 7],
    }


@pytest.mark.parametrize("name", refused())
def test_commits_that_nobody_packed_are_refused(name: str) -> None:
    assert unpack_commits(pack_commits(chain(3)), 10)
    with pytest.raises(BadPayload):
        unpack_commits(refused()[name], 10)
