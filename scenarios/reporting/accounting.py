"""The bytes of a run, out of its ledger, beside the conventions that the papers count by.

Algorithm bytes are plans (down: the seed, and the commits that a client missed) and reports, or why there is none (up),
what snapshots take in the place of commits, with what a peer sends that gives one, and what a channel's participants
are told of the largest report (down): header and payload of everything that was sent, dropped messages included.
Digests are verification and not the algorithm's. What a transport adds to them, and what processes say when they come
and go, depends on how a run is spread and stands apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.bus import Fate, Kind
from seedbus.bus.envelope import DOWN, SERVER, UP
from seedbus.bus.ledger import SUMMED, Columns, is_canonical
from seedbus.scenarios.schema.scenario import Scenario

DIRECTIONS = {"up": UP, "down": DOWN}


def account(columns: Columns, scenario: Scenario, rounds: int, dimension: int) -> dict[str, Any]:
    """What the closing table shows and `--format json` prints about messages."""
    size = columns["header_bytes"] + columns["payload_bytes"]
    clients, participations = scenario.participation.clients, int((columns["kind"] == Kind.REPORT).sum())
    of_rounds = is_canonical(columns)
    found: dict[str, Any] = {"by_kind": {}, "fates": _fates(columns["fate"][of_rounds])}
    for kind in sorted(Kind, key=lambda kind: kind.name):
        here = of_rounds & (columns["kind"] == kind)
        if here.any():
            found["by_kind"][kind.name.lower()] = {
                "messages": int(here.sum()),
                "bytes": int(size[here].sum()),
                **{name: int(columns[name][here].sum()) for name in SUMMED if name != "framing_bytes"},
                "fates": _fates(columns["fate"][here]),
            }
    # the evaluator is an instrument, also when it gives a snapshot
    of_clients = np.minimum(columns["sender"], columns["recipient"]) == SERVER
    for direction, kinds in DIRECTIONS.items():
        here = of_clients & np.isin(columns["kind"], kinds)
        total = int((size - columns["digest_bytes"])[here].sum())
        found[direction] = {
            "messages": int(here.sum()),
            "bytes": total,
            "bytes_per_client": total / clients,
            "scalars": int(columns["scalars"][here].sum()),
            "seeds": int(columns["seeds"][here].sum()),
        }
    catch_up = int(columns["catchup_bytes"].sum())
    total = found["up"]["bytes"] + found["down"]["bytes"]
    found["catchup_bytes"] = catch_up
    found["catchup_share"] = catch_up / total if total else 0.0
    found["catchup_per_client"] = _spread(np.bincount(*_caught_up(columns, of_clients), minlength=clients))
    told = (columns["kind"] == Kind.PLAN) & (columns["fate"] == Fate.DELIVERED)
    found["replayed"] = int((columns["seeds"][told] - 1).sum())
    found["bytes"], found["bytes_per_client"] = total, total / clients
    found["participations"] = participations
    found["bytes_per_participation"] = total / participations if participations else 0.0
    found["conventions"] = conventions(scenario, rounds, dimension)
    found["transport"] = _transport(columns, size)
    return found


def _caught_up(columns: Columns, of_clients: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Who was sent something to catch up, and how many bytes of it."""
    here = of_clients & (columns["catchup_bytes"] > 0)
    return columns["recipient"][here], columns["catchup_bytes"][here]


def _spread(values: NDArray[Any]) -> dict[str, float]:
    least, median, most = (float(np.quantile(values, q)) for q in (0, 0.5, 1))
    return {"min": least, "median": median, "p95": float(np.quantile(values, 0.95)), "max": most}


def _fates(fates: NDArray[np.int64]) -> dict[str, int]:
    counts = np.bincount(fates, minlength=len(Fate)).tolist()
    return {fate.name.lower(): counts[fate] for fate in Fate}


def _transport(columns: Columns, size: NDArray[np.int64]) -> dict[str, Any]:
    """What depends on how the run was spread over processes, and on nothing in the scenario."""
    is_link, is_session = columns["kind"] == Kind.LINK, ~is_canonical(columns)
    sessions = {k.name.lower(): is_session & (columns["kind"] == k) for k in Kind if k is not Kind.LINK}
    return {
        "framing_bytes": int(columns["framing_bytes"][~is_link].sum()),
        "link_bytes": int(columns["framing_bytes"][is_link].sum()),
        "sessions": {
            name: {"messages": int(here.sum()), "bytes": int(size[here].sum())}
            for name, here in sessions.items()
            if here.any()
        },
        "rows": int(is_session.sum()),
    }


def conventions(scenario: Scenario, rounds: int, dimension: int) -> dict[str, float]:
    """What the papers' own counting says of such a run, in bytes for one client over the whole run.

    decomfl: Table 2 of arXiv:2405.15861 counts 12·P·K in every round; hiso: Table 2 of arXiv:2506.02370 counts 8·P·K;
    dense: a method that sends float32 models both ways, 8·d in the m/N of the rounds in which a client takes part.
    """
    algorithm, participation = scenario.algorithm, scenario.participation
    share = participation.size / participation.clients
    found = {"dense_8d": 8.0 * dimension * rounds * share}
    if algorithm.is_dense:
        return found
    scalars = sum(algorithm.scalars(round) for round in range(rounds))
    return {"decomfl_12PK": 12.0 * scalars, "hiso_8PK": 8.0 * scalars} | found
