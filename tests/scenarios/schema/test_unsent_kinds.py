"""A fault of messages that a run never sends is told, and no other."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from worlds import scenario

from seedbus.scenarios.faults.base import MessageSelector
from seedbus.scenarios.schema.unsent_kinds import caveats

INTEGER: dict[str, Any] = {"algorithm": {"name": "decomfl", "arithmetic": "integer"}}
ALWAYS = {"plan", "report", "join"}
LAG: dict[str, Any] = {"lag": {"snapshot_after_commits": 3}}
SECURE: dict[str, Any] = {
    "algorithm": {"name": "decomfl", "arithmetic": "integer", "precision": "int32"},
    "secure_aggregation": {},
    "participation": {"clients": 4, "quorum": 2, "deadline_s": 1},
}
GOSSIP = INTEGER | {"topology": {"kind": "gossip"}, "participation": {"clients": 8}}


def kinds() -> set[str]:
    (choices, _) = get_args(MessageSelector.model_fields["kind"].annotation)
    return set(get_args(choices))


@pytest.mark.parametrize(
    ("fields", "sent"),
    [({}, ALWAYS), (LAG, ALWAYS | {"snapshot", "pull"}), (SECURE, ALWAYS | {"ask", "tell"})],
    ids=["plain", "lag", "secure"],
)
def test_each_kind_that_a_run_with_a_server_never_sends_is_told_with_the_field_that_it_lacks(
    fields: dict[str, Any], sent: set[str]
) -> None:
    unsent = sorted(kinds() - sent)
    sorts = sorted(sent) + unsent
    faults = [{"fault": "drop", "probability": 0.1, "kind": kind} for kind in sorts]
    participation = {"clients": 8, "deadline_s": 1}
    told = caveats(scenario(**{"participation": participation} | fields | {"faults": faults}))
    assert [sentence.partition(" ")[0] for sentence in told] == [f"faults.{sorts.index(kind)}" for kind in unsent]
    lacking: dict[str, dict[str, Any]] = {
        "snapshot": LAG,
        "pull": LAG,
        "ask": SECURE,
        "tell": SECURE,
        "flood": GOSSIP,
        "have": GOSSIP,
    }
    for kind, sentence in zip(unsent, told, strict=True):
        field = sentence.partition("without ")[2].partition(" ")[0]
        assert field in lacking[kind] and sentence.endswith(f"no message of the kind {kind} is sent")


def test_without_a_server_commits_and_summaries_are_sent() -> None:
    faults = [{"fault": "drop", "probability": 0.1, "kind": kind} for kind in ("flood", "have")]
    assert caveats(scenario(**GOSSIP, faults=faults)) == []
