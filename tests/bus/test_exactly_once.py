"""A report counts at most once, however often it and its plan are delivered."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from worlds import DECOMFL, scenario

from seedbus.agents.client.worker import Followers
from seedbus.bus import EVALUATOR, Kind, decode
from seedbus.pieces import Frame
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement


@contextmanager
def repeating(patch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Handle every plan one to five times, and deliver every answer to it one to five times."""
    handle_all, draw, counted = Followers.handle_all, random.Random(7), {"reports": 0, "extra": 0}

    def all_again(self: Followers, frames: Sequence[bytes]) -> Iterator[list[Frame]]:
        return (again(self, frame) for frame in frames)

    def again(self: Followers, frame: bytes) -> list[Frame]:
        if decode(frame).client == EVALUATOR:
            return next(handle_all(self, [frame]))
        answers = [each for _ in range(draw.randint(1, 5)) for each in next(handle_all(self, [frame]))]
        answers = [each for each in answers for _ in range(draw.randint(1, 5))]
        counted["reports"] += len(answers)
        counted["extra"] += len(answers) - 1
        return answers

    with patch.context() as patched:
        patched.setattr(Followers, "handle_all", all_again)
        yield counted


@pytest.mark.few(1)
@pytest.mark.parametrize("transport", ["memory", "tcp"])
@pytest.mark.parametrize("rounds", [40, pytest.param(4000, marks=pytest.mark.soak)])
def test_no_report_counts_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, transport: Any) -> None:
    what = scenario(algorithm=DECOMFL, stop={"rounds": rounds})
    reference = run(what, tmp_path / "whole")
    with repeating(monkeypatch) as counted:
        results = run(what, tmp_path / "again", placement=Placement(transport))
    refused = {reason: sum(peers.values()) for reason, peers in results.summary["refusals"].items()}
    in_flight = results.summary["traffic"]["fates"]["under_way"]
    print(f"{counted['reports']:,} reports carried, {counted['extra']:,} too many, {refused} refused")
    assert results.digest == reference.digest and results.summary["version"] == rounds
    assert sum(refused.values()) + in_flight == counted["extra"] and set(refused) <= {"duplicate", "late"}
    assert counted["extra"] > 3 * rounds
    sent = results.messages["kind"].value_counts()
    assert sent[Kind.REPORT.name] == counted["reports"] and sent[Kind.PLAN.name] == 3 * rounds
