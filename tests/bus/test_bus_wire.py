"""Bytes on a wire that belong to no message have separate ledger rows."""

from __future__ import annotations

from bus_harness import MS, SECOND, Harness, plan, reported

from seedbus.bus import SERVER, Envelope, Fate, Kind, MemoryTransport, encode
from seedbus.bus.ledger import Row


class Wire(MemoryTransport):
    """A memory transport with three bytes of framing per frame and extra link bytes for two hosts."""

    is_wire = True

    def framing_bytes(self, size: int) -> int:
        return 3

    def link_bytes(self) -> list[tuple[int, int, int]]:
        return [(-3, 700, 0), (-4, 0, 50)]


LINKS = [(Kind.LINK, -3, SERVER, 700), (Kind.LINK, SERVER, -4, 50)]


def framing(harness: Harness) -> list[tuple[int, int, int, int]]:
    return [(row.kind, row.sender, row.recipient, row.framing_bytes) for row in harness.rows]


def test_bytes_of_no_message_have_separate_rows() -> None:
    harness = Harness(transport=Wire)
    harness.run(MS)
    harness.bus.record_link_bytes()
    assert harness.rows == [
        Row(MS, MS, 0, kind, sender, recipient, 0, 0, size, 0, 0, 0, 0, Fate.DELIVERED)
        for kind, sender, recipient, size in LINKS
    ]


def test_a_transport_without_a_wire_leaves_no_such_rows_and_has_no_framing() -> None:
    class Dry(Wire):
        is_wire = False

    harness = Harness(transport=Dry, answers=reported, answer_ns=lambda client, round, seeds: SECOND)
    harness.bus.send(plan(1))
    harness.run(MS)
    harness.bus.close()
    assert [(row.kind, row.framing_bytes) for row in harness.rows] == [(Kind.PLAN, 0)]


def test_answers_that_arrived_but_were_never_sent_count_as_bytes_of_their_link() -> None:
    harness = Harness(
        transport=Wire, answers=lambda asked: [b"1234", b"12"], answer_ns=lambda client, round, seeds: SECOND
    )
    harness.bus.send(plan(1))
    harness.run(MS)
    harness.bus.close()
    assert framing(harness) == [(Kind.PLAN, SERVER, 1, 3), (Kind.LINK, 1, SERVER, 4 + 2 + 2 * 3), *LINKS]


def test_what_a_process_joins_by_has_framing_and_a_wake_is_all_framing() -> None:
    harness = Harness(transport=Wire, answers=lambda asked: [])
    harness.bus.record(Envelope(Kind.JOIN, -3, 0, 0, []))
    harness.bus.record_refused_join(-4, b"junk")
    harness.bus.record(Envelope(Kind.WELCOME, -3, 0, 0, []))
    harness.bus.wake(1, 2, [0], 7)
    assert framing(harness) == [
        (Kind.JOIN, -3, SERVER, 3), (Kind.JOIN, -4, SERVER, 3), (Kind.WELCOME, SERVER, -3, 3),
        (Kind.LINK, SERVER, 1, len(encode(Envelope(Kind.WAKE, 1, 2, 7, [0]))[0]) + 3),
    ]  # fmt: skip


def test_a_note_to_the_simulation_is_not_sent_and_counts_as_bytes_of_its_link() -> None:
    note = encode(Envelope(Kind.WAKE, 1, 2, 0, ["what it has of a snapshot"]))[0]
    harness = Harness(transport=Wire, answers=lambda asked: [note, Envelope(Kind.JOIN, 1, 2, 0, [])])
    harness.bus.wake(1, 2, [0], 7)
    harness.run(MS)
    assert harness.positions.partial_downloads == {1: note}
    assert (Kind.LINK, 1, SERVER, len(note) + 3) in framing(harness)
    assert [row for row in framing(harness) if row[0] != Kind.LINK] == [(Kind.JOIN, 1, SERVER, 3)]
