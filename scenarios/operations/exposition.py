"""A reading of a server in Prometheus's text format, version 0.0.4, and as a verdict on its health.

Labels come from closed sets of this program's own words. What a peer says never becomes one: refusals for a reason that
is not in `REASONS` are counted as `other`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from seedbus.agents.monitor import Reading
from seedbus.agents.refusals import Reason
from seedbus.algorithms.contract import DECLINES
from seedbus.bus.text import counted
from seedbus.versions import version

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STUCK_S = 60.0
"""A loop that has not run for so long, while no client computes in its process, counts as stuck."""
STRANGERS = frozenset(
    "another-run bad-hello bad-offer bad-spans cut-short empty frames gone greeted-already joined-already "
    "long-number no-clients no-handshake not-authorised not-msgpack not-yet old-zmtp out-of-turn packet-type "
    "protocol said-nothing short-packet stale-session taken too-long too-many too-many-connections too-many-entries "
    "too-many-pings too-many-refusals unasked unexpected unfinished-message unknown-client wrong-fields "
    "wrong-way".split()
)
"""The reasons why what a stranger sends is refused."""
REASONS = frozenset(map(str, Reason)) | DECLINES | STRANGERS
QUANTILES = {"median": 0.5, "p95": 0.95, "max": 1.0}

Sample = tuple[Mapping[str, str], float]
Described = tuple[str, str, str, list[Sample]]
"""A metric's name, its kind, what it is, and its samples."""


def exposition(reading: Reading | None, lag_s: float, age_s: float) -> str:
    """Return a reading as text.

    Args:
        reading: the newest one; None before the server has begun.
        lag_s: seconds that the loop took to come to the newest reading, or has taken by now if it has not.
        age_s: seconds since the reading was taken.
    """
    lines = list(_metric("info", "gauge", "The version of Seedbus.", [({"version": version("seedbus")}, 1)]))
    lines += _metric("running", "gauge", "Whether the server has begun.", [({}, int(reading is not None))])
    lines += _metric("loop_lag_seconds", "gauge", "How late the server's event loop runs its callbacks.", [({}, lag_s)])
    if reading is None:
        return "\n".join(lines) + "\n"
    lines += _metric("reading_age_seconds", "gauge", "How old the other figures are.", [({}, age_s)])
    for described in (*_of_rounds(reading), *_of_members(reading)):
        lines += _metric(*described)
    return "\n".join(lines) + "\n"


def _of_rounds(reading: Reading) -> tuple[Described, ...]:
    """What rounds have done, and sent."""
    by_kind = sorted(reading.traffic.items())
    labels = [{"kind": kind, "direction": direction} for (kind, direction), _ in by_kind]
    return (
        ("rounds_total", "counter", "Closed rounds.", [({}, reading.rounds)]),
        (
            "rounds_limit",
            "gauge",
            "Rounds after which the run ends at the latest.",
            [] if reading.last_round is None else [({}, reading.last_round)],
        ),
        ("model_version", "gauge", "The newest version of the model.", [({}, reading.version)]),
        ("clock_seconds", "gauge", "The run's clock, which may be simulated.", [({}, reading.clock_s)]),
        (
            "bytes_total",
            "counter",
            "Bytes of messages, with headers and framing, as of the last closed round.",
            [(label, size) for label, (_, (_, size)) in zip(labels, by_kind, strict=True)],
        ),
        (
            "messages_total",
            "counter",
            "Messages as of the last closed round.",
            [(label, count) for label, (_, (count, _)) in zip(labels, by_kind, strict=True) if label["kind"] != "link"],
        ),
    )


def _of_members(reading: Reading) -> tuple[Described, ...]:
    """Who is there, what waits for them, and what of theirs was refused."""
    slowest = reading.slowest
    return (
        (
            "queue_length",
            "gauge",
            "Messages in the server's mailbox and in flight, and answers that are owed.",
            [({"queue": queue}, length) for queue, length in reading.queues.items()],
        ),
        (
            "slowest_answer_seconds",
            "gauge",
            "The longest time, by the run's clock, after which the last closed round got a report.",
            [] if slowest is None else [({}, slowest[1])],
        ),
        (
            "slowest_client",
            "gauge",
            "The number of the client that took that long.",
            [] if slowest is None else [({}, slowest[0])],
        ),
        ("refusals_total", "counter", "Refused messages.", _refusals(reading.refusals)),
        (
            "clients",
            "gauge",
            "Clients of the run, those that have a process, and those that may be asked.",
            [
                ({"state": "all"}, reading.clients),
                ({"state": "hosted"}, reading.hosted),
                ({"state": "joined"}, reading.joined),
            ],
        ),
        ("processes", "gauge", "Processes that have joined.", [({}, reading.processes)]),
        (
            "replica_lag_commits",
            "gauge",
            "Commits that the replicas of joined clients lack, as far as the server knows.",
            [({"spread": name}, lag) for name, lag in lags(reading.replicas, reading.version).items()],
        ),
    )


def health(reading: Reading | None, lag_s: float, *, computes_here: bool) -> tuple[bool, str]:
    """Return whether rounds close, or a reason is known why not; and a sentence.

    Args:
        reading: the newest one; None before the server has begun.
        lag_s: as for `exposition`.
        computes_here: whether clients compute in the server's process, so that its loop stands still meanwhile.
    """
    if reading is None:
        return True, "the run is being prepared"
    rounds = counted(reading.rounds, "round")
    closed = f"{rounds} {'is' if reading.rounds == 1 else 'are'} closed"
    if not reading.can_go_on:
        without = reading.clients - reading.hosted
        who = f"{without:,} of {counted(reading.clients, 'client')}" if without else "the evaluator"
        return False, f"after {rounds} the run waits for processes of {who}"
    if lag_s > STUCK_S and not computes_here:
        return False, f"after {rounds} the server's loop has not run for {lag_s:.0f} s"
    if reading.awaited:
        return True, f"round {reading.rounds} is open and waits for {counted(reading.awaited, 'client')}"
    if reading.evaluations:
        return True, f"{closed}; the evaluator works"
    return True, closed


def lags(replicas: Mapping[int, int], version: int) -> dict[str, int]:
    """Return the quantiles `QUANTILES` of the commits that replicas lack; {} if there are no replicas.

    Args:
        replicas: version → number of replicas at it.
        version: the newest version.
    """
    total = sum(replicas.values())
    found: dict[str, int] = {}
    passed = 0
    for each in sorted(replicas, reverse=True):
        passed += replicas[each]
        for name, share in QUANTILES.items():
            if passed >= share * total:
                found.setdefault(name, version - each)
    return found


def _refusals(counts: Mapping[str, int]) -> list[Sample]:
    by_reason: dict[str, int] = {}
    for reason, count in counts.items():
        known = reason if reason in REASONS else "other"
        by_reason[known] = by_reason.get(known, 0) + count
    return [({"reason": reason}, count) for reason, count in sorted(by_reason.items())]


def _metric(name: str, kind: str, what: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> Iterable[str]:
    """Yield the lines of one metric; none if it has no samples."""
    head = [f"# HELP seedbus_{name} {what}", f"# TYPE seedbus_{name} {kind}"]
    for labels, value in samples:
        yield from head
        head = []
        named = ",".join(f'{label}="{word}"' for label, word in labels.items())
        yield f"seedbus_{name}{f'{{{named}}}' if named else ''} {value!r}"
