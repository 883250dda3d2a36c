"""Byte counts of a run, computed from its ledger, beside the counting conventions of the papers.

Algorithm bytes are the header and payload of every message of these kinds that was sent, dropped ones included:

- up: reports, or the reasons why there is none; requests for parts of the model, and the parts that a peer provides;
  without a server, everything that nodes send to each other;
- down: plans (the seed, and the commits that a client missed); the model in place of these, and requests to the
  peer that provides it; the norm of the largest report, which the participants of a channel receive.

Digests serve verification and are not counted as the algorithm's. The bytes that a transport adds, and the messages of
processes that join and leave, depend on how a run is distributed; they are reported apart. What a wire would carry if
each client had a process of its own is predicted (`bus.wire`), alike on every transport.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.bus import Fate, Kind, wire
from seedbus.bus.envelope import BETWEEN, DOWN, SERVER, UP
from seedbus.bus.ledger import SUMMED, Columns, is_canonical
from seedbus.scenarios.reporting.statistics import replays, spread
from seedbus.scenarios.schema.scenario import Scenario

DIRECTIONS = {"up": UP + BETWEEN, "down": DOWN}


def account(columns: Columns, scenario: Scenario, rounds: int, dimension: int, lasts_s: float) -> dict[str, Any]:
    """Return the `traffic` part of a run's summary.

    Args:
        columns: the run's ledger.
        scenario: its scenario.
        rounds: number of rounds of the run.
        dimension: number of coordinates of the model, d.
        lasts_s: seconds of the run's clock.
    """
    size = columns["header_bytes"] + columns["payload_bytes"]
    clients, participations = scenario.participation.clients, int((columns["kind"] == Kind.REPORT).sum())
    is_of_round = is_canonical(columns)
    traffic: dict[str, Any] = {
        "by_kind": _by_kind(columns, size, is_of_round),
        "fates": _fates(columns["fate"][is_of_round]),
    }
    # messages of the evaluator are not counted, not even the model that it provides: it is a measuring instrument
    is_of_client = np.minimum(columns["sender"], columns["recipient"]) >= SERVER
    for direction, kinds in DIRECTIONS.items():
        selected = is_of_client & np.isin(columns["kind"], kinds)
        total = int((size - columns["digest_bytes"])[selected].sum())
        traffic[direction] = {
            "messages": int(selected.sum()),
            "bytes": total,
            "bytes_per_client": total / clients,
            "scalars": int(columns["scalars"][selected].sum()),
            "seeds": int(columns["seeds"][selected].sum()),
        }
    catch_up = int(columns["catchup_bytes"].sum())
    total = traffic["up"]["bytes"] + traffic["down"]["bytes"]
    traffic["catchup_bytes"] = catch_up
    traffic["catchup_share"] = catch_up / total if total else 0.0
    traffic["catchup_per_client"] = spread(_catch_up_bytes(columns, is_of_client, clients))
    counts = replays(columns)
    traffic["replayed"] = None if (counts < 0).any() else int(counts.sum())
    traffic["repeated"] = int(columns["repeated"].sum())
    traffic["bytes"] = total
    traffic["bytes_per_client"] = total / clients
    traffic["participations"] = participations
    traffic["bytes_per_participation"] = total / participations if participations else 0.0
    traffic["conventions"] = conventions(scenario, rounds, dimension)
    traffic["transport"] = _transport(columns, size)
    if scenario.has_server:
        traffic["wire"] = _wire(columns, scenario, lasts_s)
    else:
        traffic["links"] = _links(columns, size, clients)
    return traffic


def offered_bytes(scenario: Scenario) -> int:
    """Return about the bytes of a scenario as a server offers it over tcp."""
    return len(json.dumps(scenario.resolved() | {"transport": "tcp", "seedbus": "0.2"}).encode())


def _wire(columns: Columns, scenario: Scenario, lasts_s: float) -> dict[str, Any]:
    """Return what a wire carries in each direction: bytes with all frames, and with the headers of TCP and IP."""
    clients = scenario.participation.clients
    found = wire.predict(columns, clients=clients, lasts_ns=int(lasts_s * 1e9), scenario_bytes=offered_bytes(scenario))
    return {
        direction: {
            "framed": all.framed,
            "bytes": all.wire,
            "packets": all.packets,
            "resent_of_percent": all.sent_again(0.01),
            "bytes_of_rounds": rounds.wire,
            "bytes_of_heartbeats": beats.wire,
            "bytes_of_connections": opened.wire,
        }
        for direction, all, rounds, beats, opened in zip(DIRECTIONS, found.total, *found, strict=True)
    }


def _by_kind(columns: Columns, size: NDArray[np.int64], is_of_round: NDArray[np.bool_]) -> dict[str, Any]:
    """Return what the messages of each kind were, by its name."""
    found = {}
    for kind in sorted(Kind, key=lambda kind: kind.name):
        selected = is_of_round & (columns["kind"] == kind)
        if selected.any():
            found[kind.name.lower()] = {
                "messages": int(selected.sum()),
                "bytes": int(size[selected].sum()),
                **{name: int(columns[name][selected].sum()) for name in SUMMED if name != "framing_bytes"},
                "fates": _fates(columns["fate"][selected]),
            }
    return found


def verified(columns: Columns) -> int:
    """Return how many accepted reports had digests, which are compared with those of the evaluator's replica."""
    is_report = (columns["kind"] == Kind.REPORT) & (columns["fate"] == Fate.DELIVERED)
    return int((is_report & (columns["digest_bytes"] > 0)).sum())


def _catch_up_bytes(columns: Columns, is_of_client: NDArray[np.bool_], clients: int) -> NDArray[Any]:
    """Catch-up bytes that were sent to each client, [N]."""
    recipient = columns["recipient"]
    selected = is_of_client & (columns["catchup_bytes"] > 0) & (recipient >= 0) & (recipient < clients)
    return np.bincount(recipient[selected], columns["catchup_bytes"][selected], minlength=clients)


def _links(columns: Columns, size: NDArray[np.int64], clients: int) -> dict[str, float]:
    """Return how many links between nodes carried messages, each direction a link, and the spread of their bytes."""
    selected = np.isin(columns["kind"], BETWEEN)
    links = columns["sender"][selected] * clients + columns["recipient"][selected]
    used, at = np.unique(links, return_inverse=True)
    if not used.size:
        return {"count": 0}
    return {"count": used.size} | spread(np.bincount(at, size[selected]))


def _fates(fates: NDArray[np.int64]) -> dict[str, int]:
    counts = np.bincount(fates, minlength=len(Fate)).tolist()
    return {fate.name.lower(): counts[fate] for fate in Fate}


def _transport(columns: Columns, size: NDArray[np.int64]) -> dict[str, Any]:
    """Bytes that depend on how the run was distributed over processes, and not on the scenario."""
    is_link, is_session = columns["kind"] == Kind.LINK, ~is_canonical(columns)
    sessions = {k.name.lower(): is_session & (columns["kind"] == k) for k in Kind if k is not Kind.LINK}
    return {
        "framing_bytes": int(columns["framing_bytes"][~is_link].sum()),
        "link_bytes": int(columns["framing_bytes"][is_link].sum()),
        "sessions": {
            name: {"messages": int(selected.sum()), "bytes": int(size[selected].sum())}
            for name, selected in sessions.items()
            if selected.any()
        },
        "rows": int(is_session.sum()),
    }


def conventions(scenario: Scenario, rounds: int, dimension: int) -> dict[str, float]:
    """Return the bytes for one client over the whole run as the papers would count them.

    - decomfl_12PK: Table 2 of arXiv:2405.15861 counts 12·P·K in every round;
    - hiso_8PK: Table 2 of arXiv:2506.02370 counts 8·P·K in every round; both have one scalar for each perturbation,
      and a report with curvature holds two;
    - dense_8d: a method that sends float32 models both ways, 8·d in the share of the rounds in which a client takes
      part: the reports that a round wants, over N.
    """
    algorithm, participation = scenario.algorithm, scenario.participation
    share = participation.wanted / participation.clients
    dense = {"dense_8d": 8.0 * dimension * rounds * share}
    if algorithm.facts.is_dense:
        return dense
    if isinstance(algorithm, ScalarOnly):
        directions = sum(map(algorithm.directions_of_report, range(rounds)))
    else:
        directions = sum(algorithm.work(round).scalars for round in range(rounds))
    return {"decomfl_12PK": 12.0 * directions, "hiso_8PK": 8.0 * directions} | dense
