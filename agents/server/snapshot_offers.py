"""How the server gives a snapshot out: a state machine without I/O, whose methods return the messages to send.

Rules
- One snapshot is held at a time. Its bytes are opaque: the client that installs it compares its digest.
- Only a client to which it was offered may pull it. An offer allows `MAX_RESENDS` times the number of chunks, so a
  client that falls silent halfway costs nothing until a round asks it again; it is then offered the snapshot that is
  held, and pulls the chunks that it lacks.
"""

from __future__ import annotations

import msgpack

from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Chunk
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.messages import Outgoing
from seedbus.agents.server.snapshot import Snapshot
from seedbus.algorithms.contract import ReportRefused
from seedbus.bus import Envelope, Kind, Tally

MAX_RESENDS = 4
"""How many times all chunks one offer allows. A chunk that is lost or doubled on its way is not the client's fault."""


class NoSnapshot(ReportRefused):
    """A client pulls a snapshot that is not held, or is not held any more."""


class BadSnapshot(ReportRefused):
    """A client reports that the chunks which it pulled do not have the digest that was announced."""


class SnapshotOffers:
    """The snapshot that is held, and how much of it each client may still pull.

    Attributes:
        held: the snapshot; None if there is none.
        allowed: client → chunks that it may still pull; of clients with an offer.
    """

    def __init__(self, lag: Lag) -> None:
        self._lag = lag
        self.held: Snapshot | None = None
        self.allowed: dict[int, int] = {}
        self._is_new = False

    def replace(self, snapshot: Snapshot | None) -> None:
        """Hold this snapshot, or none, in the place of the one before, whose offers end."""
        self.held = snapshot
        self._is_new = True
        self.allowed.clear()

    def offer(self, client: int, held: Snapshot, round: int) -> Outgoing:
        """Let a client pull the snapshot that is held."""
        self.allowed[client] = MAX_RESENDS * held.title.count
        return _billed(chunks.offer(held.title, self._lag.window, client, round))

    def withdraw(self, client: int) -> None:
        """End a client's offer, if it has one."""
        self.allowed.pop(client, None)

    def installed(self, client: int, version: int) -> bool:
        """Whether a client that states its version has thereby installed the snapshot that it was offered."""
        has_installed = client in self.allowed and self.held is not None and version == self.held.title.version
        if has_installed:
            self.withdraw(client)
        return has_installed

    def bytes_under_way(self, whole: int, since: int) -> int:
        """Return the bytes that clients would be sent in vain if another snapshot took this one's place.

        Of a snapshot in several chunks a client has those that it pulled. A client that has pulled nothing yet may be
        about to, if the snapshot is not older than version `since`. That counts as a whole one: else, where rounds are
        shorter than a message's way, each snapshot would be replaced before anyone can pull it.

        Args:
            whole: bytes of a snapshot with all of its messages; the answer is not more.
            since: the oldest version whose offers may still be answered.
        """
        if self.held is None or not self.allowed:
            return 0
        pieces = self.held.pieces
        pulled = [MAX_RESENDS * len(pieces) - left for left in self.allowed.values()]
        if self.held.title.version >= since and 0 in pulled:
            return whole
        return min(whole, sum(pulled) * len(pieces[0])) if len(pieces) > 1 else 0

    def pulled(self, envelope: Envelope, round: int) -> list[Outgoing]:
        """Return the chunks that a PULL asks for.

        Raises:
            BadPayload: the message cannot be unpacked.
            NoSnapshot: another snapshot is held, or none.
            BadSnapshot: the client says that it found another digest.
            ReportRefused: the client has no offer, asks for more than it allows, or for chunks that do not exist.
        """
        client, held = envelope.client, self.held
        digest, wanted = chunks.unpack_pull(envelope, self._lag.window)
        if held is None or (envelope.base, digest) != (held.title.version, held.title.digest):
            raise NoSnapshot("no-snapshot", f"there is no snapshot of version {envelope.base} (any more)")
        if client not in self.allowed:
            raise ReportRefused("not-offered", f"client {client} was not offered the snapshot that it pulls")
        if not wanted:
            self.withdraw(client)
            raise BadSnapshot("bad-snapshot", f"client {client} says that the snapshot it pulled has another digest")
        if wanted[-1] >= held.title.count:
            raise ReportRefused("no-chunk", f"chunk {wanted[-1]} of a snapshot of {held.title.count}")
        if len(wanted) > self.allowed[client]:
            raise ReportRefused("pulls-again", f"client {client} pulls more than it was offered")
        self.allowed[client] -= len(wanted)
        pieces = (Chunk(held.title, index, held.pieces[index]) for index in wanted)
        return [_billed(piece.pack(Kind.SNAPSHOT, client, round)) for piece in pieces]

    def take_new(self) -> bytes | None:
        """Return the packed snapshot if it is another than at the last call, b"" if none is held any more."""
        if not self._is_new:
            return None
        self._is_new = False
        return b"" if self.held is None else self.held.pack()


def _billed(envelope: Envelope) -> Outgoing:
    """A message with the bytes of its body counted as catching up."""
    return envelope, Tally(catchup_bytes=len(msgpack.packb(envelope.body)))
