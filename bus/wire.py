"""What messages take on a wire: frames of ZMTP, segments of TCP, acknowledgements and heartbeats.

The model is of TCP between a server and clients of which each has a process of its own, with keys, as `seedbus server`
and `seedbus client` are beside each other on two machines. Bytes are those of IP and above: Ethernet's 14 of a frame
and its gaps are left out, as the kernel's counters of an IP tunnel leave them out. Every function works on whole
columns of the ledger, so that a million messages take seconds.

What it counts, and where that is from:

- a packet of `bus.zeromq.packet` for each message that departs, and an empty one for each delivery without an answer;
- the frame of ZMTP 3.1 (RFC 37: flags, and a length of 1 or 8 bytes) and of CURVE (RFC 26: `MESSAGE`, a short nonce
  and a box, 33 bytes in all);
- the headers of IPv4 (RFC 791, 20 bytes) and TCP (RFC 9293, 20 bytes), and the timestamps that Linux sends in each
  segment (RFC 7323, 12 bytes), of segments of 1,448 bytes at most: Ethernet's 1,500 less these;
- acknowledgements without data as Linux sends them (RFC 1122, 4.2.3.2; `net/ipv4/tcp_input.c`): at once after every
  second segment of a message; after 40 ms if the process has sent nothing that carries it; and at once, even so, for
  the first segment after one that was acknowledged late (Linux does so 16 times, and anew after each long pause);
- PING and PONG of each connection every two seconds, and its opening and end.

Not counted: the evaluator, which is a process beside the server; connections that are lost, refused or opened anew;
the wait before the first round; and what is sent again (`sent_again` estimates that).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.bus.envelope import ANSWERS, SERVER, Kind
from seedbus.bus.ledger import Columns

Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

HEADERS = 20 + 20 + 12
"""Bytes of a segment's headers: IPv4, TCP, and the timestamps of TCP."""
SEGMENT = 1500 - HEADERS
"""Bytes of a full segment's content on Ethernet."""
SYN = 60
"""Bytes of the first segment in each direction, whose options are maximum size, SACK, timestamps and window scale."""
DELAYED_NS = 40_000_000
"""How long Linux waits for data that carry an acknowledgement (`TCP_DELACK_MIN`)."""
HEARTBEAT_NS = 2_000_000_000
"""The interval of PINGs that a server offers by default."""
PACKET = 9
"""Bytes of a packet before its content (`packet.HEAD`)."""
OFFERED = 47
"""Bytes of an OFFER's content beside the scenario: run, host, one span, heartbeat, nonce, and their lengths."""
HELLO = 15
"""Bytes of a HELLO's content that asks for one client."""
JOIN, WELCOME, BYE = 40, 16, 7
"""Bytes of these messages of a process with one client, with their lengths; the proof of a mask would be 18 more."""
NOTE = 45
"""Bytes of what a client's process tells the simulation with each answer while it downloads a replica."""
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Wire:
    """The bytes that ZMTP 3.1 adds to frames.

    Attributes:
        up: bytes that the connecting end sends to open a connection.
        down: bytes that the listening end sends to open it.
        sealed: bytes that encryption adds to a frame.
        is_framed: frames have headers; inproc's have none.
        is_checked: packets have checksums, because nothing else would notice a flipped byte.
    """

    up: int
    down: int
    sealed: int = 0
    is_framed: bool = True
    is_checked: bool = False

    def bytes_of(self, size: int) -> int:
        """Return the bytes on the wire of a frame of `size` bytes; its header is flags and a length of 1 or 8 bytes."""
        size += self.sealed
        return size + (2 if size < 256 else 9) if self.is_framed else size


INPROC = Wire(0, 0, is_framed=False)
IPC = Wire(107, 107)  # a greeting and a READY, without an identity
PLAIN = Wire(107, 107, is_checked=True)
CURVE = Wire(567, 301, sealed=33)  # a greeting, HELLO and INITIATE; a greeting, WELCOME and READY (RFC 25 and 26)


def wire_of(endpoint: str, has_keys: bool) -> Wire:
    """Return what travels between a hub and a link at an address.

    Args:
        endpoint: the address.
        has_keys: whether both have keys.
    """
    if has_keys:
        return CURVE
    return {"inproc": INPROC, "ipc": IPC}.get(endpoint.partition(":")[0], PLAIN)


class Carried(NamedTuple):
    """What a wire carries in one direction.

    Attributes:
        framed: bytes of ZMTP, which is all that TCP is given.
        segments: segments that carry them.
        acks: segments without data.
        options: bytes of options beside the timestamps, in the first segment of a connection.
        lone: segments that are all of their message.
    """

    framed: int = 0
    segments: int = 0
    acks: int = 0
    options: int = 0
    lone: int = 0

    @property
    def packets(self) -> int:
        """Packets of IP."""
        return self.segments + self.acks

    @property
    def wire(self) -> int:
        """Bytes of IP."""
        return self.framed + HEADERS * self.packets + self.options

    def plus(self, other: Carried, times: float = 1) -> Carried:
        """Return the sum with another, that many times."""
        return Carried(*(round(mine + times * its) for mine, its in zip(self, other, strict=True)))

    def sent_again(self, loss: float) -> int:
        """Return about how many bytes more are sent where this share of packets is lost in both directions.

        A segment is sent 1/(1 − p) times. A lone one is sent as often again for the losses of its answer, which carries
        its acknowledgement (RFC 8985: a probe follows after two round trips).

        Args:
            loss: p, from 0 to below 1.
        """
        segment = self.framed / max(1, self.segments) + HEADERS
        return round(loss / (1 - loss) * (self.segments + self.lone) * segment)


class Traffic(NamedTuple):
    """What the wires of a run carry.

    Attributes:
        up, down: to the server, and from it.
    """

    up: Carried = Carried()
    down: Carried = Carried()

    def plus(self, other: Traffic, times: float = 1) -> Traffic:
        """Return the sum with another, that many times."""
        return Traffic(self.up.plus(other.up, times), self.down.plus(other.down, times))


class Prediction(NamedTuple):
    """What the wires of a run carry, by what it is for.

    Attributes:
        rounds: the messages of rounds, and their acknowledgements.
        heartbeats: PINGs and PONGs.
        connections: opening them, offers, joining, and their end.
    """

    rounds: Traffic
    heartbeats: Traffic
    connections: Traffic

    @property
    def total(self) -> Traffic:
        return self.rounds.plus(self.heartbeats).plus(self.connections)


class _Packets(NamedTuple):
    """Packets of one direction, ordered by client and time: whose, when it departs, when it arrives (−1: never), its
    bytes of ZMTP; [n] each."""

    client: Whole
    sent_ns: Whole
    arrived_ns: Whole
    framed: Whole

    @property
    def segments(self) -> Whole:
        return -(-self.framed // SEGMENT)

    def arriving(self) -> _Packets:
        """Return those that arrive, ordered by client and arrival."""
        rows = np.flatnonzero(self.arrived_ns >= 0)
        rows = rows[np.lexsort((self.arrived_ns[rows], self.client[rows]))]
        return _Packets(*(column[rows] for column in self))


def predict(columns: Columns, *, clients: int, lasts_ns: int, scenario_bytes: int) -> Prediction:
    """Return what the wires of a run with a server carry, each client in a process of its own.

    Args:
        columns: the run's ledger.
        clients: number of clients, N; all are connected from the first round to the end.
        lasts_ns: how long the rounds last.
        scenario_bytes: bytes of the scenario as a server offers it.
    """
    down, up = _exchanged(columns)
    return Prediction(
        _rounds(down, up, lasts_ns),
        heartbeats(clients, lasts_ns, _busy_ns(up) / max(1, clients * lasts_ns)),
        connections(clients, scenario_bytes),
    )


def _exchanged(columns: Columns) -> tuple[_Packets, _Packets]:
    """Packets of the messages of rounds, from the server and to it."""
    ends = np.maximum(columns["sender"], columns["recipient"])
    is_message = (np.minimum(columns["sender"], columns["recipient"]) == SERVER) & (ends >= 0)
    rows = np.flatnonzero(is_message & ~np.isin(columns["kind"], (Kind.LINK, Kind.WAKE)))
    is_up = columns["recipient"][rows] == SERVER
    return _packets(columns, rows[~is_up], None), _packets(columns, rows[is_up], _empty(columns, rows, is_up))


def _rounds(down: _Packets, up: _Packets, lasts_ns: int) -> Traffic:
    """What the wires carry for these packets."""
    at_client, at_server = down.arriving(), up.arriving()
    return Traffic(
        _carried(up, _acks_of_client(at_client, up)),
        _carried(down, _acks_of_server(at_server, down, lasts_ns)),
    )


def heartbeats(clients: int, lasts_ns: int, busy: float = 0.0) -> Traffic:
    """Return what PINGs and PONGs take on the wires of so many clients.

    Args:
        clients: number of clients.
        lasts_ns: how long they are connected.
        busy: the share of that in which a client sends data soon, so that a PONG is not acknowledged alone.
    """
    beats = clients * (lasts_ns // HEARTBEAT_NS)
    framed = beats * CURVE.bytes_of(PACKET)
    alone = round(beats * max(0.0, 1 - busy))
    return Traffic(Carried(framed, beats, alone, lone=beats), Carried(framed, beats, lone=beats))


def _busy_ns(up: _Packets) -> int:
    """Nanoseconds, of all clients, that are shortly before a packet of theirs."""
    is_first = np.append(True, up.client[1:] != up.client[:-1])[: up.client.size]
    return int(np.minimum(np.where(is_first, DELAYED_NS, np.diff(up.sent_ns, prepend=0)), DELAYED_NS).sum())


def connections(clients: int, scenario_bytes: int) -> Traffic:
    """Return what it takes to open connections, to join, and to leave; for the arguments see `predict`.

    Both greetings come in two parts, of which the first is acknowledged alone, and so are OFFER, JOIN and WELCOME,
    which the other end works upon, and each end's FIN. A handshake of CURVE is two segments more of either end.
    """
    up = [CURVE.bytes_of(PACKET + size) for size in (HELLO, JOIN, 0)]  # the last one is the FAREWELL
    down = [CURVE.bytes_of(PACKET + size) for size in (OFFERED + scenario_bytes, WELCOME, BYE)]
    options = SYN - HEADERS
    offer = _segments(down[0])
    acks_up = 1 + 1 + max(1, offer // 2) + 1 + 2  # of SYN, greeting, OFFER, WELCOME; FIN and its answer
    opened = Traffic(
        Carried(CURVE.up + sum(up), 4 + len(up), acks_up + 1, options),
        Carried(CURVE.down + sum(down), 4 + offer + len(down) - 1, 1 + 1 + 1 + 2, options),
    )
    return Traffic().plus(opened, clients)


def _empty(columns: Columns, rows: Whole, is_up: Mask) -> Whole:
    """Rows of deliveries that the client answers with nothing: others of that kind in its round are answered."""
    group = np.arange(max(Kind) + 1)
    for kind, answers in ANSWERS.items():
        group[list(answers)] = kind
    ends = np.maximum(columns["sender"], columns["recipient"])[rows]
    keys = (ends << 40) + (columns["round"][rows] << 8) + group[columns["kind"][rows]]
    reached = np.flatnonzero(~is_up & (columns["arrived_ns"][rows] >= 0))
    reached = reached[np.argsort(keys[reached], kind="stable")]
    asked, first, at = np.unique(keys[reached], return_index=True, return_inverse=True)
    answered, counts = np.unique(keys[is_up], return_counts=True)
    known = np.zeros(asked.size, np.int64)
    known[np.isin(asked, answered)] = counts[np.isin(answered, asked)]
    return rows[reached[np.arange(reached.size) - first[at] >= known[at]]]


def _packets(columns: Columns, rows: Whole, empty: Whole | None) -> _Packets:
    """Packets of messages: those of a round that depart for one client, or from it, at one instant travel in one.

    Args:
        rows: the messages, all of one direction.
        empty: of answers, the rows of the deliveries that are answered with nothing; of deliveries, None.
    """
    client = np.maximum(columns["sender"], columns["recipient"])[rows]
    sent_ns, arrived_ns = columns["sent_ns"][rows], columns["arrived_ns"][rows]
    round = columns["round"][rows]  # of two rounds at one instant, the later waits for the answers of the earlier
    entries = _entries(columns["header_bytes"][rows] + columns["payload_bytes"][rows])
    if empty is not None:  # each delivery is answered by a number of entries
        entries += NOTE * (columns["kind"][rows] == Kind.PULL)
        none = NOTE * np.isin(columns["kind"][empty], [kind for kind, those in ANSWERS.items() if Kind.PULL in those])
        client = np.concatenate([client, columns["recipient"][empty]])
        round = np.concatenate([round, columns["round"][empty]])
        sent_ns = np.concatenate([sent_ns, columns["arrived_ns"][empty]])
        back_ns = 2 * columns["arrived_ns"][empty] - columns["sent_ns"][empty]  # as long as the delivery took
        arrived_ns = np.concatenate([arrived_ns, back_ns])
        entries = np.concatenate([entries, none]) + 1
    if not client.size:
        return _Packets(client, sent_ns, arrived_ns, entries)
    order = np.lexsort((round, sent_ns, client))
    client, sent_ns, arrived_ns, entries = client[order], sent_ns[order], arrived_ns[order], entries[order]
    together = np.stack([client, sent_ns, round[order]])
    begins = np.flatnonzero(np.append(True, (together[:, 1:] != together[:, :-1]).any(0)))
    _, first, at = np.unique(client, return_index=True, return_inverse=True)
    number = (np.arange(client.size) - first[at])[begins]  # of the first delivery in the packet
    content = np.add.reduceat(entries, begins) + _number_bytes(number)
    arrived_ns = np.maximum.reduceat(arrived_ns, begins)
    return _Packets(client[begins], sent_ns[begins], arrived_ns, _framed(PACKET + content))


def _acks_of_client(came: _Packets, up: _Packets) -> int:
    """Count a client's acknowledgements of deliveries; a PONG, which it does not answer, makes the next one hasty."""
    late, is_after_late, gap_ns = _late(came, up)
    hasty = np.where(is_after_late, 1.0, np.clip((gap_ns - DELAYED_NS) / HEARTBEAT_NS, 0, 1))
    return _halves(came) + int(late.sum()) + round(float(hasty[_has_tail(came) & ~late].sum()))


def _acks_of_server(came: _Packets, down: _Packets, lasts_ns: int) -> int:
    """Count the server's acknowledgements of answers; it answers a PING, so the PING is hasty and what follows not."""
    late, is_after_late, gap_ns = _late(came, down)
    hasty = is_after_late * (1 - np.clip(gap_ns / HEARTBEAT_NS, 0, 1))
    is_last = np.append(came.client[1:] != came.client[:-1], True)[: came.client.size]
    left_ns = np.maximum(0, lasts_ns - came.arrived_ns)
    pause_ns = np.where(is_last, left_ns, np.append(gap_ns[1:], 0)[: gap_ns.size])
    pings = np.clip((pause_ns - DELAYED_NS) / HEARTBEAT_NS, 0, 1)[late]
    return _halves(came) + int(late.sum()) + round(float(hasty[_has_tail(came) & ~late].sum() + pings.sum()))


def _late(came: _Packets, sent: _Packets) -> tuple[Mask, Mask, NDArray[np.float64]]:
    """Return of packets that came, [n] each: whether their last segment is acknowledged late, and alone; whether that
    of the packet before was; and the nanoseconds since that came."""
    who = np.concatenate([came.client, sent.client])
    when = np.concatenate([came.arrived_ns, sent.sent_ns])
    is_sent = np.arange(who.size) >= came.client.size
    order = np.lexsort((is_sent, when, who))
    places = np.where(is_sent[order], np.arange(who.size), who.size)
    following = np.minimum.accumulate(places[::-1])[::-1]
    next_ns = np.append(when[order], _NEVER)[following]
    next_ns[np.append(who[order], -1)[following] != who[order]] = _NEVER
    waits = np.empty(who.size, np.int64)
    waits[order] = next_ns - when[order]
    late = _has_tail(came) & (waits[: came.client.size] > DELAYED_NS)
    is_first = np.append(True, came.client[1:] != came.client[:-1])[: came.client.size]
    before = np.append(True, late[:-1])[: late.size] | is_first
    gap_ns = np.where(is_first, np.inf, np.diff(came.arrived_ns, prepend=0))
    return late, before, gap_ns


def _has_tail(came: _Packets) -> Mask:
    """Whether a packet has a last segment that follows no other since the last acknowledgement."""
    tails: Mask = came.segments % 2 == 1
    return tails


def _halves(came: _Packets) -> int:
    return int((came.segments // 2).sum())


def _carried(packets: _Packets, acks: int) -> Carried:
    segments = packets.segments
    return Carried(int(packets.framed.sum()), int(segments.sum()), acks, lone=int((segments == 1).sum()))


def _segments(size: int) -> int:
    return -(-size // SEGMENT)


def _number_bytes(values: Whole) -> Whole:
    """Return how many bytes numbers take in LEB128; see `packet.number_bytes`."""
    return 1 + np.searchsorted(2 ** (7 * np.arange(1, 5)), values, "right")


def _entries(sizes: Whole) -> Whole:
    """Return how many bytes entries take whose frames have these sizes; see `packet.entry_bytes`."""
    return _number_bytes(sizes) + sizes


def _framed(sizes: Whole) -> Whole:
    """Return `CURVE.bytes_of` of sizes."""
    sealed = sizes + CURVE.sealed
    return sealed + np.where(sealed < 256, 2, 9)
