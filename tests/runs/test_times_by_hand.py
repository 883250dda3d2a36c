"""Simulated times of a whole run, computed from docs/explanation/simulated-and-real.md with none of the bus's code."""

from __future__ import annotations

import heapq
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

from worlds import scenario

from seedbus.bus import Kind
from seedbus.scenarios.running.run import run

NETWORK = {
    "latency": 0.0137,
    "up_mbps": 0.013,
    "down_mbps": 0.021,
    "shared_up_mbps": 0.017,
    "shared_down_mbps": 0.033,
}
DEADLINE_NS = 350_000_000
STRAGGLER = {"fault": "straggler", "clients": [1], "factor": 5.5, "pause_s": 0.4}


def test_every_message_is_sent_and_arrives_at_the_nanosecond_that_the_documents_say(tmp_path: Path) -> None:
    what = scenario(
        algorithm={"name": "decomfl", "perturbations": 3, "local_steps": 2},
        participation={"clients": 5, "cohort": 4, "quorum": 1, "deadline_s": DEADLINE_NS / 1e9},
        network=NETWORK,
        compute={"evaluation": 0.0061, "replay": 0.0017, "slowness": 1.3},
        faults=[STRAGGLER, {"fault": "drop", "probability": 0.2}],
    )
    results = run(what, tmp_path / "run")
    rows: list[Any] = list(results.messages.itertuples())
    sent = {(row.round, row.recipient): row for row in rows if row.kind == Kind.PLAN.name}
    answers = {(row.round, row.sender): row for row in rows if row.kind == Kind.REPORT.name}
    busy: dict[Any, int] = {}

    def passed(link: tuple[int, str], mbps: float, size: int, now: int) -> int:
        busy[link] = max(now, busy.get(link, 0)) + math.ceil(size * 8000 / mbps)
        return busy[link]

    def arrival(row: Any, way: str, client: int, now: int) -> int:
        assert row.sent_ns == now
        size = row.header_bytes + row.payload_bytes - row.digest_bytes
        at = passed((-1, way), NETWORK[f"shared_{way}_mbps"], size, now)
        at = passed((client, way), NETWORK[f"{way}_mbps"], size, at) + 13_700_000
        assert row.arrived_ns in (-1, at)  # −1: lost, or under way when the run ended
        return at if row.fate != "DROPPED" else -1

    version, held = 0, dict.fromkeys(range(5), 0)
    again = dict.fromkeys(range(5), 0)  # commits that came once more, by client
    now, checked = 0, 0
    working, coming = list[tuple[int, int, int]](), list[tuple[int, int, int]]()  # (when, round, client)
    for round in range(what.stop.most_rounds):
        asked = {client for in_round, client in sent if in_round == round}
        ends = now + DEADLINE_NS
        for client in sorted(asked):
            row = sent[round, client]
            at = arrival(row, "down", client, now)
            if at >= 0:  # even while it still works at an earlier plan
                missed, held[client] = version - held[client], version
                again[client] += row.repeated
                assert missed + row.repeated == row.seeds - 1
                work = round_ns((0.0061 * 8 + 0.0017 * missed) * 1.3)
                if client == 1:
                    work = round_ns(Fraction(11, 2) * work / 10**9) + 400_000_000
                heapq.heappush(working, (at + work, round, client))
        while asked and min(working + coming, default=(ends,))[0] < ends:
            if working and (not coming or working[0][0] <= coming[0][0]):
                now, of_round, client = heapq.heappop(working)
                at = arrival(answers[of_round, client], "up", client, now)
                checked += 1
                if at >= 0:
                    heapq.heappush(coming, (at, of_round, client))
            else:
                now, of_round, client = heapq.heappop(coming)
                asked -= {client} if of_round == round else set()
        now = ends if asked else now
        version += bool(results.rounds.has_commit[round])
    assert now == round_ns(Fraction(str(results.summary["simulated_s"])))
    assert checked > 40 and len([client for _, _, client in working if client == 1]) > 1  # at several plans at once
    assert again[1] > 0 < sum(again.values()) - again[1], "its answers are late, and those of others are lost"


def test_a_client_at_work_is_asked_again_when_its_late_report_has_come(tmp_path: Path) -> None:
    """Client 0 works for 1 s, and client 1 for 3.5 s, which is longer than a deadline and shorter than two."""
    results = run(
        working_1_s(
            participation={"clients": 2, "deadline_s": 2, "late": {}},
            faults=[{"fault": "straggler", "clients": [1], "factor": 3.5}],
            stop={"rounds": 7},
        ),
        tmp_path / "run",
    )
    assert told(results) == [
        # opened, closed, asked, late
        (0.0, 2.0, [0, 1], 0),
        (2.0, 3.0, [0], 0),
        (3.0, 4.0, [0], 1),  # client 1's report of round 0 comes at 3.5 s
        (4.0, 6.0, [0, 1], 0),
        (6.0, 7.0, [0], 0),
        (7.0, 8.0, [0], 1),
        (8.0, 10.0, [0, 1], 0),
    ]
    assert results.rounds["is_expired"].tolist() == [True, False, False] * 2 + [True]


def test_a_round_with_too_few_free_clients_waits_for_those_at_work_and_no_longer_than_the_deadline(
    tmp_path: Path,
) -> None:
    """Client 1 works for 3 s, and client 2 for 7 s. Client 3's reports of the first round are lost: it is free."""
    results = run(
        working_1_s(
            participation={"clients": 4, "quorum": 3, "deadline_s": 2, "late": {}},
            faults=[
                {"fault": "straggler", "clients": [1], "factor": 3},
                {"fault": "straggler", "clients": [2], "factor": 7},
                {"fault": "drop", "clients": [3], "probability": 1, "for_rounds": 1, "direction": "up"},
            ],
            stop={"rounds": 5},
        ),
        tmp_path / "run",
    )
    assert told(results) == [
        (0.0, 2.0, [0, 1, 2, 3], 0),
        (2.0, 5.0, [0, 1, 3], 0),  # asked at 3 s, when client 1 has answered; no quorum, since it is late again
        (5.0, 8.0, [0, 1, 3], 0),  # likewise at 6 s
        (8.0, 10.0, [0, 2, 3], 0),  # client 2 has answered at 7 s
        (10.0, 12.0, [0, 1, 3], 0),
    ]
    results = run(
        working_1_s(
            participation={"clients": 3, "quorum": 3, "deadline_s": 2, "late": {}},
            faults=[{"fault": "straggler", "clients": [2], "factor": 5}],
            stop={"rounds": 4},
        ),
        tmp_path / "in vain",
    )
    assert told(results) == [(0.0, 2.0, [0, 1, 2], 0), (2.0, 4.0, [], 0), (4.0, 7.0, [0, 1, 2], 0), (7.0, 9.0, [], 0)]
    assert results.rounds["is_expired"].tolist() == [True] * 4


def test_a_client_whose_plan_or_report_is_lost_is_free(tmp_path: Path) -> None:
    for direction in ("up", "down"):
        results = run(
            working_1_s(
                participation={"clients": 2, "deadline_s": 2, "late": {}},
                faults=[{"fault": "drop", "clients": [1], "probability": 1, "for_rounds": 1, "direction": direction}],
                stop={"rounds": 2},
            ),
            tmp_path / direction,
        )
        assert told(results) == [(0.0, 2.0, [0, 1], 0), (2.0, 3.0, [0, 1], 0)]


def test_a_wait_for_clients_at_work_ends_when_they_have_worked_though_no_message_says_so(tmp_path: Path) -> None:
    faults: list[dict[str, Any]] = [
        {"fault": "drop", "probability": 1, "direction": "up"},
        {"fault": "dropout", "when": "after-training"},
        {"fault": "delay", "by": 30, "direction": "up"},
    ]
    for fault in faults:
        results = run(
            working_1_s(
                participation={"clients": 2, "quorum": 2, "deadline_s": 2, "late": {}},
                faults=[{"fault": "straggler", "clients": [1], "factor": 3}, fault | {"clients": [1], "for_rounds": 1}],
                stop={"rounds": 2},
            ),
            tmp_path / fault["fault"],
        )
        assert told(results) == [(0.0, 2.0, [0, 1], 0), (2.0, 5.0, [0, 1], 0)], "asked at 3 s"


def working_1_s(**changes: Any) -> Any:
    """Return a scenario whose clients evaluate two losses in 1 s, and whose messages take no time."""
    return scenario(
        algorithm={"name": "decomfl", "perturbations": 1}, network={}, compute={"evaluation": 0.5}, **changes
    )


def told(results: Any) -> list[tuple[float, float, list[int], int]]:
    """Return of each round when it opened and closed, whom it asked, and how many late reports its commit has."""
    plans = results.messages[results.messages.kind == Kind.PLAN.name]
    rounds = results.rounds
    closed_s = (rounds["opened_s"] + rounds["took_s"]).tolist()
    asked = [sorted(plans[plans["round"] == round]["recipient"].tolist()) for round in range(len(closed_s))]
    return list(zip(rounds["opened_s"].tolist(), closed_s, asked, rounds["late"].tolist(), strict=True))


def test_a_run_is_the_same_whether_it_is_verified_or_not(tmp_path: Path) -> None:
    told = []
    for verify in (True, False):
        results = run(
            scenario(
                algorithm={"name": "decomfl", "perturbations": 3},
                participation={"clients": 5, "cohort": 4, "quorum": 1, "deadline_s": DEADLINE_NS / 1e9},
                network=NETWORK,
                verify=verify,
            ),
            tmp_path / str(verify),
        )
        messages = results.messages[results.messages.kind.isin([Kind.PLAN.name, Kind.REPORT.name])]
        assert (messages.digest_bytes > 0).any() == verify
        sizes = messages.payload_bytes - messages.digest_bytes
        alike = messages.assign(payload_bytes=sizes, digest_bytes=0).drop(columns="bytes").reset_index(drop=True)
        told.append((results.digest, alike))
    (digest, messages), (same, also) = told
    assert digest == same
    assert messages.equals(also)


def round_ns(seconds: float | Fraction) -> int:
    return round(seconds * 10**9)
