"""Which way a client that lags gets to the round's version, against a count of all bytes without short cuts."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from algorithm_cases import Rehearsal, bits, make, rehearse
from coordinator_cases import PROOF

from seedbus.agents import messages
from seedbus.agents.catch_up.chunks import DIGEST_BYTES, Title, pull
from seedbus.agents.catch_up.server import CatchUp
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.catch_up.snapshot_bytes import SnapshotBytes
from seedbus.agents.catch_up.snapshots import Snapshot, Snapshots
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.bus import Kind

NEWEST, CHUNK = 60, 64
SMALL, LARGE = 120, 9000
"""The bytes of a replica that with its messages is some ten or twenty commits, and of one that is more than all are."""
READER = NEWEST + 1
"""A client that has been offered the snapshot that is held, and is about to pull it."""
SERVERS = [
    (3, None, 0),
    (NEWEST, None, 0),
    (3, 1, 0),
    (NEWEST, 40, 0),
    (3, 40, 30),
    (3, NEWEST - 2, 30),
    (NEWEST, 51, 0),
]
"""How many commits are in memory, the version of the snapshot that is held, and the patience with its reader."""
CASES: dict[str, dict[str, Any]] = {
    "decomfl": {"perturbations": 2},
    "fedkseed": {"pool": 400, "perturbations": 3},
}


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest) -> Rehearsal:
    return rehearse(make(request.param, **CASES[request.param]), NEWEST)


@pytest.fixture(scope="module")
def missed(run: Rehearsal) -> list[int]:
    """The bytes of the commits after each version, as a plan has them."""
    plan = run.algorithm.plan(NEWEST, NEWEST, 7)
    tallies = [messages.pack_plan(run.algorithm, 0, plan, run.commits[after:])[1] for after in range(NEWEST + 1)]
    return [tally.catchup_bytes or 1 for tally in tallies]  # an empty list has a byte


@pytest.fixture(scope="module")
def alone(run: Rehearsal) -> list[int]:
    """The bytes of the commits after each version, each packed alone."""
    sizes = [len(msgpack.packb(run.algorithm.pack_commits([commit]).body)) for commit in run.commits]
    return [sum(sizes[after:]) for after in range(NEWEST + 1)]


def server(run: Rehearsal, lag: Lag, kept: int, held: int | None, patience: int, size: int = SMALL) -> CatchUp:
    """Return a server with a client at each version, and an open round."""
    versions = {client: client for client in range(READER)}
    catch_up = CatchUp(
        run.algorithm,
        lag,
        versions,
        replica_bytes=size,
        patience=patience,
        reload=lambda after, last: run.commits[after:last],
        proofs=lambda: PROOF,
    )
    for commit in run.commits:
        catch_up.remember(commit, commit.version - kept)
    catch_up.open(run.algorithm.plan(NEWEST, NEWEST, 7), set())
    if held is not None:
        pieces = [bytes(min(CHUNK, size - start)) for start in range(0, size, CHUNK)]
        snapshot = Snapshot(Title(held, len(pieces), bytes(DIGEST_BYTES)), pieces)
        catch_up.unpack(catch_up.pack(), snapshot.pack())
        catch_up.request(READER, is_fresh=False)
        catch_up.messages.clear()
    return catch_up


def cheapest(
    missed: list[int], catch_up: CatchUp, client: int, budget: int | None, patience: int, size: int = SMALL
) -> str:
    """Return the way that takes the fewest bytes; of equal ones, the first."""
    counts = SnapshotBytes(size, catch_up.lag, PROOF)
    snapshot, fetch = (sum(each(NEWEST, client, NEWEST)) for each in (counts.of_offer, counts.of_fetch))
    oldest = 0 if budget is None else NEWEST - budget
    ways = {"replay": missed[client]} if client >= oldest else {}
    if catch_up.held is not None and catch_up.held.title.version >= max(client + 1, oldest):
        ways["held"] = snapshot + missed[catch_up.held.title.version]
    ways["fresh"] = snapshot + catch_up.renewal_bytes(snapshot, fetch, patience) + missed[NEWEST]
    return min(ways, key=lambda way: ways[way])


def taken(catch_up: CatchUp, client: int) -> str:
    """Return the way that the server takes, and undo it."""
    sent = catch_up.plan_for(client)
    asked = [envelope for envelope, _ in catch_up.messages]
    if sent:
        ((plan, tally),) = sent
        assert (plan.kind, plan.client, tally.since) == (Kind.PLAN, client, client) and not asked
        return "replay"
    (envelope,) = asked
    held = catch_up.held
    if envelope.kind is Kind.SNAPSHOT:
        assert held is not None and (envelope.client, envelope.base) == (client, held.title.version)
    catch_up.messages.clear()
    Snapshots.crashed(catch_up)
    catch_up.left([client])
    return "held" if envelope.kind is Kind.SNAPSHOT else "fresh"


@pytest.mark.parametrize("source", ["evaluator", "peer"])
@pytest.mark.parametrize("budget", [None, 9])
def test_a_client_gets_what_takes_the_fewest_bytes(
    run: Rehearsal, missed: list[int], source: Any, budget: int | None
) -> None:
    lag = Lag(snapshot_after_bytes="snapshot", snapshot_after_commits=budget, source=source, chunk_bytes=CHUNK)
    ways = set[str]()
    for kept, held, patience in SERVERS:
        catch_up = server(run, lag, kept, held, patience)
        for client in range(0, READER, 3):
            expected = cheapest(missed, catch_up, client, budget, patience)
            assert taken(catch_up, client) == expected, (kept, held, patience, client)
            ways.add(expected)
    assert ways == {"replay", "held", "fresh"}


@pytest.mark.parametrize("held", [None, 30, 50])
@pytest.mark.parametrize("lag", [None, Lag(snapshot_after_bytes="snapshot"), Lag(snapshot_after_commits=NEWEST)])
def test_a_client_before_the_base_of_a_pruned_journal_gets_a_snapshot_or_nothing(
    run: Rehearsal, lag: Lag | None, held: int | None
) -> None:
    first = 40
    replica = run.newcomer()
    run.algorithm.apply(replica, run.commits[:first])
    fields = b"".join(field.tobytes() for _, field in sorted(replica.fields.items()))
    base = messages.PackedReplica(first, bytes.fromhex(replica.digest()), fields)
    catch_up = CatchUp(
        run.algorithm,
        lag,
        {client: client for client in range(READER)},
        replica_bytes=LARGE,  # so that commits are the cheapest way, where there are any
        reload=lambda after, last: run.commits[after:last] if after >= first else pytest.fail("they are deleted"),
        proofs=lambda: PROOF,
    )
    older = b"" if held is None else Snapshot(Title(held, 1, bytes(DIGEST_BYTES)), [fields]).pack()
    catch_up.unpack(catch_up.pack(), older, base)
    for commit in run.commits[first:]:
        catch_up.remember(commit, commit.version)
    catch_up.open(run.algorithm.plan(NEWEST, NEWEST, 7), {*range(READER)})
    assert catch_up.held is not None and catch_up.held.title.version == max(first, held or 0)
    for client in (0, 1, first - 1):
        assert taken(catch_up, client) in {"held", "fresh"}
        catch_up.request(client, is_fresh=False)
        catch_up.messages.clear()
        with pytest.raises(ReportRefused, match="has another digest"):  # it says so
            catch_up.received(pull(catch_up.held.title, (), client, NEWEST))
        assert not catch_up.take(), "neither commits with a gap nor the same snapshot again"
    for client in (first, first + 1, NEWEST):
        assert taken(catch_up, client) == "replay"
    with pytest.raises(BadPayload, match="the base of the journal does not have its digest"):
        catch_up.unpack(catch_up.pack(), b"", base._replace(digest=bytes(DIGEST_BYTES)))


@pytest.mark.parametrize("budget", [None, 9])
def test_a_model_of_more_bytes_than_all_commits_is_sent_only_beyond_a_budget(
    run: Rehearsal, missed: list[int], budget: int | None
) -> None:
    lag = Lag(snapshot_after_bytes="snapshot", snapshot_after_commits=budget, chunk_bytes=CHUNK)
    catch_up = server(run, lag, NEWEST, None, 0, LARGE)
    for client in range(READER):
        expected = "replay" if budget is None or client >= NEWEST - budget else "fresh"
        assert cheapest(missed, catch_up, client, budget, 0, LARGE) == expected
        assert taken(catch_up, client) == expected, client


@pytest.mark.parametrize("most", [None, 9])
def test_a_client_gets_a_snapshot_if_it_misses_more_bytes_or_commits_than_its_budget(
    run: Rehearsal, missed: list[int], alone: list[int], most: int | None
) -> None:
    """The bytes are those of commits packed alone, or of their sum if it is sent and there is no budget of commits."""
    for budget in (missed[NEWEST - 6], alone[NEWEST - 6], alone[NEWEST - 6] - 1):
        lag = Lag(snapshot_after_bytes=budget, snapshot_after_commits=most, chunk_bytes=CHUNK)

        def is_beyond(version: int, budget: int = budget) -> bool:
            if most is None and run.algorithm.facts.most_catch_up_bytes is not None:
                return missed[version] > budget
            return alone[version] > budget or (most is not None and NEWEST - version > most)

        for held in (None, NEWEST - 6, NEWEST - 5):
            catch_up = server(run, lag, NEWEST, held, 0)
            for client in range(NEWEST - 20, READER):
                snapshot = "fresh" if held is None or is_beyond(held) else "held"
                expected = snapshot if is_beyond(client) else "replay"
                assert taken(catch_up, client) == expected, (budget, held, client)


def test_every_plan_of_a_dense_algorithm_has_the_model_and_no_client_gets_a_snapshot() -> None:
    run = rehearse(make("fedavg"), 3)
    versions = {0: 3, 1: 0}
    catch_up = CatchUp(run.algorithm, Lag(snapshot_after_bytes="snapshot"), versions, replica_bytes=1)
    for commit in run.commits:
        catch_up.remember(commit, 0)
    catch_up.open(run.algorithm.plan(3, 3, 7), set())
    for client in versions:
        ((plan, _),) = catch_up.plan_for(client)
        assert bits(messages.unpack_plan(run.algorithm, plan)[1]) == bits(run.commits[-1:])
