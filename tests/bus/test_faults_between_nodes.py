"""Faults of messages between the nodes of a run without a server: which ends count."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from seedbus.bus import FaultHooks, Kind
from seedbus.scenarios.faults.drop import Drop
from seedbus.scenarios.faults.partition import Partition


def test_between_nodes_a_fault_strikes_what_either_end_selects_and_a_cut_what_one_end_alone_does() -> None:
    pairs, found = list(itertools.permutations(range(4), 2)), []
    for fault in (Drop(clients=[0, 1]), Partition(clients=[0, 1])):
        rules = FaultHooks([fault], 0, 4)
        found.append([pair for pair in pairs if rules.judge((Kind.FLOOD, pair[0], 0, 0, 0), 0, peer=pair[1]).drop])
    assert found[0] == [pair for pair in pairs if {0, 1} & set(pair)]
    assert found[1] == [pair for pair in pairs if len({0, 1} & set(pair)) == 1]


@pytest.mark.parametrize("node", [0, 2])
def test_between_nodes_nothing_passes_from_or_to_one_that_is_away(node: int) -> None:
    asked, counted = list[Any](), list[int]()

    class Away:
        def stops(self, key: Any, arriving: bool) -> bool:
            asked.append((*key, arriving))
            return bool(key[1] == node)

        def count_dropped(self, client: int) -> None:
            counted.append(client)

    rules = FaultHooks([], 0, 4)
    rules.add(Away())
    pairs = list(itertools.permutations(range(4), 2))
    found = [pair for pair in pairs if rules.judge((Kind.FLOOD, pair[0], node, 0, 0), 0, peer=pair[1]).drop]
    assert found == [pair for pair in pairs if node in pair] and counted == [node] * len(found)
    asked.clear()
    rules.judge((Kind.FLOOD, 1, 7, 5, 4), 0, peer=3)
    rules.judge((Kind.PLAN, 1, 7, 5, 4), 0, arriving=True)
    rules.is_silent(1, 7)
    assert asked == [
        (Kind.FLOOD, 1, 7, 5, 4, False), (Kind.FLOOD, 3, 7, 5, 4, False),
        (Kind.PLAN, 1, 7, 5, 4, True), (Kind.REPORT, 1, 7, 0, 0, False),
    ]  # fmt: skip
