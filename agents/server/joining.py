"""Clients join and leave a run, as the coordinator sees it; and a member that states its version is believed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from seedbus.agents.admission import false_proof, proofs_for, why_not
from seedbus.agents.catch_up.server import MAX_LOST, CatchUp
from seedbus.agents.messages import Join
from seedbus.agents.server.positions import Positions
from seedbus.agents.server.rounds import Rounds
from seedbus.agents.server.run_spec import RunSpec
from seedbus.algorithms.contract import ReportRefused


class Joining:
    """The members of a run come and go.

    Attributes:
        proofs: what every process must prove, as far as the run knows it.
        believes: whether the versions that a process states of known clients are believed, as in real time.
        apart: clients that no process brings into the run, because they are away; they join by themselves.
    """

    def __init__(
        self,
        spec: RunSpec,
        positions: Positions,
        catch_up: CatchUp,
        rounds: Rounds,
        *,
        proofs: Mapping[str, bytes],
        apart: Container[int],
    ) -> None:
        self._positions = positions
        self._catch_up = catch_up
        self._rounds = rounds
        self._clients = spec.participation.clients
        self.proofs = proofs
        self.believes = not spec.is_virtual
        self.apart = apart

    def joined(self, join: Join, *, round: int | None, is_due: bool, nonce: bytes = b"", decides: bool = True) -> None:
        """Act upon a JOIN, as `Coordinator.joined` describes it.

        Raises:
            ReportRefused: a proof is false, or the client may not join.
        """
        positions, catch_up = self._positions, self._catch_up
        members = range(self._clients) if is_due else positions.members
        proofs = proofs_for(self.proofs, join, nonce)
        objection = why_not(join, proofs, self._clients, self._catch_up.history.version, members)
        if objection is not None:
            raise ReportRefused(*objection)
        if decides and join.sender < 0:
            self.proofs = {**join.proofs, **self.proofs}
        if round is not None and round < self._rounds.number and self._is_overtaken(join, round):
            return
        is_alone = join.sender >= 0
        has_pulled = is_alone and catch_up.installed(join.sender, join.spans[0].version if join.spans else 0)
        if is_alone and not (is_due or has_pulled) and not catch_up.is_lost(join.sender):
            detail = f"client {join.sender} says more than {MAX_LOST} times in a round where it is"
            raise ReportRefused("joins-again", detail)
        arrived = self._arrived(join)
        lost = {c for c, version in arrived if has_pulled or not is_due or version < positions.believed.get(c, 0)}
        positions.enter(arrived)
        for client, _ in arrived:
            self._rounds.dismiss(client)
            if client in lost:
                catch_up.resend(client)  # the plan, from the version where it really is

    def check(self, join: Join, nonce: bytes) -> None:
        """Raises `ReportRefused` if a proof is false. Changes nothing; its cost does not grow with the clients."""
        false = false_proof(join, proofs_for(self.proofs, join, nonce))
        if false is not None:
            raise ReportRefused(*false)

    def left(self, clients: Iterable[int]) -> None:
        """Clients are gone; no round waits for them any more."""
        clients = list(clients)
        for client in clients:
            self._positions.leave(client)
            self._rounds.dismiss(client, open_too=True)
        self._catch_up.left(clients)

    def _arrived(self, join: Join) -> list[tuple[int, int]]:
        """(client, version) of the clients for which this JOIN changes anything."""
        versions = self._positions.believed
        return [
            (client, span.version)
            for span in join.spans
            for client in range(span.first, span.last + 1)
            if join.sender >= 0 or not (client in self.apart or (client in versions and not self.believes))
        ]

    def _is_overtaken(self, join: Join, round: int) -> bool:
        """Whether a member's JOIN of an earlier round states an older version than an answer that came before it.

        An answer of the JOIN's round, or of a later one, shows the version at which that round began, or a newer one.
        A lower one that the server believes is of an earlier answer, and the client has lost its state since. If the
        JOIN was not overtaken, the next plan will not follow on the client's version, and the client says so again.
        """
        client, versions = join.sender, self._positions.believed
        if client not in self._positions.members or any(span.version >= versions[client] for span in join.spans):
            return False
        following = self._catch_up.history.between(versions[client], versions[client] + 1)
        return not following or following[0].round >= round
