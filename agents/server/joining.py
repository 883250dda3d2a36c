"""Who comes into a run and who leaves it, as the coordinator has it; and where a client is that says so itself."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from seedbus.agents.admission import false_proof, proofs_for, why_not
from seedbus.agents.messages import Join, Outgoing
from seedbus.agents.server.catch_up import JOINS, CatchUp
from seedbus.agents.server.client_positions import ClientPositions
from seedbus.agents.server.rounds import Rounds
from seedbus.algorithms.contract import ReportRefused


class Joining:
    """Members come and go. clients: how many there are; proofs, believes, apart: as the `Coordinator` is told."""

    def __init__(
        self,
        places: ClientPositions,
        catch_up: CatchUp,
        rounds: Rounds,
        clients: int,
        *,
        proofs: Mapping[str, bytes],
        believes: bool,
        apart: Container[int],
    ) -> None:
        self._places, self._catch_up, self._rounds, self._clients = places, catch_up, rounds, clients
        self.proofs, self.believes, self.apart = proofs, believes, apart

    def joined(
        self, join: Join, *, round: int | None, is_due: bool, nonce: bytes = b"", decides: bool = True
    ) -> list[Outgoing]:
        """A process brings clients, or a client says where it really is; returns plans for those that have one to
        answer. Raises `ReportRefused`."""
        places, snapshots, now = self._places, self._catch_up.snapshots, self._rounds.current
        members = range(self._clients) if is_due else places.members
        proofs = proofs_for(self.proofs, join, nonce)
        objection = why_not(join, proofs, self._clients, self._catch_up.history.version, members)
        if objection is not None:
            raise ReportRefused(*objection)
        if decides and join.sender < 0:
            self.proofs = {**join.proofs, **self.proofs}
        if round is not None and round < self._rounds.number and self._is_behind(join):
            return []
        is_alone = join.sender >= 0
        has_pulled = is_alone and snapshots.installed(join.sender, join.spans[0].version if join.spans else 0)
        if is_alone and now is not None and not (is_due or has_pulled) and not self._catch_up.is_lost(join.sender, now):
            detail = f"client {join.sender} says more than {JOINS} times in a round where it is"
            raise ReportRefused("joins-again", detail)
        came = self._came(join)
        lost = {c for c, version in came if has_pulled or not is_due or version < places.versions.get(c, 0)}
        places.enter(came)
        plans: list[Outgoing] = []
        for client, _ in came:
            self._rounds.dismiss(client)
            if client in lost and now is not None and client in now.waiting:
                plans += self._catch_up.told(client, now)  # the plan again, from where it really is
        return plans

    def check(self, join: Join, nonce: bytes) -> None:
        """Raises `ReportRefused` if a proof is false; changes nothing, and takes no longer for many clients."""
        false = false_proof(join, proofs_for(self.proofs, join, nonce))
        if false is not None:
            raise ReportRefused(*false)

    def left(self, clients: Iterable[int]) -> None:
        """Clients are gone; nobody waits for them."""
        clients = list(clients)
        for client in clients:
            self._places.leave(client)
            self._rounds.dismiss(client, open_too=True)
        self._catch_up.snapshots.left(clients)

    def _came(self, join: Join) -> list[tuple[int, int]]:
        """(client, version) of those whose coming changes anything."""
        known = self._places.versions
        return [
            (client, span.version)
            for span in join.spans
            for client in range(span.first, span.last + 1)
            if join.sender >= 0 or not (client in self.apart or (client in known and not self.believes))
        ]

    def _is_behind(self, join: Join) -> bool:
        """True of a member's JOIN that would set it back.

        Out of an earlier round it may have been overtaken by what the client has answered since. If it was not, the
        client's next plan does not follow on what it holds, and it says so again.
        """
        is_behind = all(span.version < self._places.versions.get(span.first, 0) for span in join.spans)
        return 0 <= join.sender in self._places.members and is_behind
