"""Reports that have come together are taken as each alone would be, and only by the round that they are for."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from seedbus.agents import messages
from seedbus.agents.policies.participation import Participation
from seedbus.agents.server.member_index import MemberIndex
from seedbus.agents.server.report_reader import ReportReader
from seedbus.agents.server.rounds import Rounds
from seedbus.agents.server.run_spec import RunSpec
from seedbus.agents.server.stopping import Stop
from seedbus.agents.verification import Verifier
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import Envelope, Kind
from seedbus.bus.envelope import NO_TALLY

ALGORITHM = DeComFL(perturbations=1)


def reader(every: int = 0, algorithm: Any = ALGORITHM) -> tuple[ReportReader, Rounds]:
    rounds = Rounds(RunSpec(algorithm, Participation(clients=3), 1, Stop(rounds=1)))
    members = MemberIndex(3)
    members.update(range(3))
    rounds.open(members, 0, 0)
    return ReportReader(algorithm, rounds, Verifier(every)), rounds


def report(client: int, value: float, round: int = 0) -> Envelope:
    return Envelope(Kind.REPORT, client, round, 0, [struct.pack("<f", value)])


def test_reports_are_read_together_and_taken_one_by_one() -> None:
    reads, rounds = reader()
    sent = [report(client, float(client)) for client in range(3)]
    reads.read_together(sent)
    assert rounds.current is not None
    assert list(reads._reports) == [0, 1, 2]
    for envelope in sent:
        assert reads.tally(envelope) == messages.tally(ALGORITHM, lambda version: False, envelope)
        found, digests = reads.read(envelope, rounds.current.plan, has_digests=False)
        assert (found.tolist(), digests) == ([[float(envelope.client)]], b"")
    assert not reads._reports


def test_what_is_not_plainly_sound_is_refused_when_its_time_comes() -> None:
    reads, rounds = reader()
    sent = [report(0, float("nan")), report(1, 2.0), Envelope(Kind.REPORT, 2, 0, 0, [b"three"])]
    reads.read_together(sent)
    assert rounds.current is not None and list(reads._reports) == [1]
    assert reads.tally(sent[1]) == messages.tally(ALGORITHM, lambda version: False, sent[1]) != NO_TALLY
    with pytest.raises(ReportRefused):
        reads.read(sent[0], rounds.current.plan, has_digests=False)
    with pytest.raises(BadPayload):
        reads.read(sent[2], rounds.current.plan, has_digests=False)


def test_another_report_of_a_client_is_not_taken_for_the_one_that_was_read() -> None:
    reads, rounds = reader()
    reads.read_together([report(0, 1.0), report(1, 1.0)])
    assert rounds.current is not None
    found, _ = reads.read(report(0, 5.0), rounds.current.plan, has_digests=False)
    assert found.tolist() == [[5.0]]
    longer = Envelope(Kind.REPORT, 1, 0, 0, [bytes(12)])
    assert reads.tally(longer) == messages.tally(ALGORITHM, lambda version: False, longer)


def test_nothing_is_read_between_rounds_and_the_next_round_has_reports_of_its_own() -> None:
    algorithm: Any = DeComFL(perturbations={0: 1, 1: 3})
    reads, rounds = reader(algorithm=algorithm)
    reads.read_together([report(0, 1.0)])
    rounds.close(0, 1)
    reads.read_together([report(1, 1.0)])
    members = MemberIndex(3)
    members.update(range(3))
    rounds.open(members, 0, 2)
    sent = Envelope(Kind.REPORT, 2, 1, 0, [struct.pack("<fff", 1, 2, 3)])
    reads.read_together([sent])
    assert list(reads._reports) == [2]
    assert reads.tally(sent) == messages.tally(algorithm, lambda version: False, sent)


def test_reports_of_other_rounds_and_those_with_digests_are_read_alone() -> None:
    reads, _ = reader()
    reads.read_together(
        [report(0, 1.0, round=1), report(1, 1.0)._replace(base=1), report(2, 1.0)._replace(kind=Kind.TELL)]
    )
    assert not reads._reports
    reads, _ = reader(every=1)
    reads.read_together([report(0, 1.0), report(1, 1.0)])
    assert not reads._reports
