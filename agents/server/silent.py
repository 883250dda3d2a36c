"""Members that are waited for without an answer: once nothing is under way any more, none of them will answer."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from seedbus.agents.catch_up.server import CatchUp
from seedbus.agents.errors import Unfinishable
from seedbus.agents.policies.participation import Participation
from seedbus.agents.server.positions import Positions
from seedbus.agents.server.rounds import Rounds
from seedbus.bus.text import counted, listed

NOT_AS_ASKED = "has answered without what it was asked for"


class SilentMembers:
    """Ends the wait for members that have answered, and not what they were asked.

    Args:
        policy: has a deadline, or not.
        rounds: wait for members.
        positions: know who is a member.
        catch_up: waits for a replica of theirs.
        refused: counts a refusal: of a client, for a reason, with a sentence, in a round.
    """

    def __init__(
        self,
        policy: Participation,
        rounds: Rounds,
        positions: Positions,
        catch_up: CatchUp,
        refused: Callable[[int, str, str, int], None],
    ) -> None:
        self._has_deadline = policy.deadline_s is not None
        self._rounds = rounds
        self._positions = positions
        self._catch_up = catch_up
        self._refused = refused
        self._silent: set[int] = set()  # who was asked and did not answer, since a report counted

    def heard(self) -> None:
        """A report has counted."""
        self._silent.clear()

    def left(self, clients: Iterable[int]) -> None:
        """Clients are gone."""
        self._silent.difference_update(clients)

    @property
    def is_unheard(self) -> bool:
        """Whether all members were asked, and answered with nothing, since a report counted."""
        return bool(self._silent) and self._silent.issuperset(self._positions.members)

    def give_up(self, losing: Container[int], *, awaits_process: bool, may_come: bool) -> None:
        """No round waits for silent members any more, nor for a replica of theirs, unless a deadline ends the wait.

        Args:
            losing, awaits_process, may_come: as for `Coordinator.no_answer`.

        Raises:
            Unfinishable: no member has answered since the last report that counted, and nobody else may come.
        """
        if self._has_deadline and not self._catch_up.awaits_evaluator:
            return
        is_next_source = self._catch_up.give_up_source()
        if is_next_source or self._has_deadline:
            return
        silent = []
        for client, number in self._rounds.awaited:
            if self._rounds.was_dismissed(client):  # and was asked once more, for the secrets that it had
                self._rounds.dismiss(client, open_too=True)
            elif client not in losing:
                silent.append((client, number))
        self._silent.update(client for client, _ in silent)
        if silent and self.is_unheard and awaits_process:
            return
        if silent and self.is_unheard and not may_come:
            raise Unfinishable(self.waits_in_vain())
        for client, number in silent:
            self._refused(client, "no-answer", f"client {client} {NOT_AS_ASKED} in round {number}", number)

    def waits_in_vain(self) -> str:
        """Return a sentence about the clients that the open round waits for, which will never answer."""
        missing = sorted({client for client, _ in self._rounds.awaited})
        return (
            f"round {self._rounds.number} waits for {counted(len(missing), 'client')} ({listed(missing)}) that will "
            "never answer; set participation.deadline_s to let rounds close without them"
        )
