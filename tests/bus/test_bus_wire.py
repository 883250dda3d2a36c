"""Bytes on a wire that belong to no message have separate ledger rows."""

from __future__ import annotations

from bus_harness import MS, SECOND, Harness, plan, reported

from seedbus.bus import SERVER, Kind, MemoryTransport


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
    harness.bus.record_link_bytes()
    assert framing(harness) == LINKS
    assert not any(row.header_bytes + row.payload_bytes for row in harness.rows)


def test_a_transport_without_a_wire_leaves_no_such_rows() -> None:
    class Dry(Wire):
        is_wire = False

    harness = Harness(transport=Dry, answers=reported, answer_ns=lambda client, round, seeds: SECOND)
    harness.bus.send(plan(1))
    harness.run(MS)
    harness.bus.close()
    assert [row.kind for row in harness.rows] == [Kind.PLAN]


def test_answers_that_arrived_but_were_never_sent_count_as_bytes_of_their_link() -> None:
    harness = Harness(
        transport=Wire, answers=lambda asked: [b"1234", b"12"], answer_ns=lambda client, round, seeds: SECOND
    )
    harness.bus.send(plan(1))
    harness.run(MS)
    harness.bus.close()
    assert framing(harness) == [(Kind.PLAN, SERVER, 1, 3), (Kind.LINK, 1, SERVER, 4 + 2 + 2 * 3), *LINKS]
