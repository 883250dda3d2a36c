"""When a link sends a PING, when a server counts as gone, when to connect again, and when to give up.

Nothing here reads a clock: the callers pass the time, in seconds.
"""

from __future__ import annotations

from math import inf

MISSED = 3  # heartbeats without a packet after which a connection is given up
FIRST_HEARTBEAT_S = 2.0  # until an OFFER names the server's heartbeat
BACK_OFF_S = (0.1, 5.0)  # the first and the longest wait before a new connection


class Liveness:
    """Whether a server is there, and what is due when.

    Args:
        patience_s: how long a server may be away.
        now_s: the time.

    Attributes:
        has_server: a server has made an OFFER since the last connection was lost.
    """

    def __init__(self, patience_s: float, now_s: float) -> None:
        self.patience_s = patience_s
        self.has_server = False
        self._lost_s = now_s  # when the server was lost, if there is none
        self._heartbeat_s = FIRST_HEARTBEAT_S
        self._back_off_s = BACK_OFF_S[0]
        self._heard_s = now_s  # the last packet, or sign of one; inf while there is no connection
        self._next_ping_s = now_s
        self._reconnect_s = now_s

    # -- what has happened

    def connected(self, now_s: float) -> None:
        """A socket has been connected, though a server may not be there."""
        self._heard_s = now_s
        self._next_ping_s = now_s + self._heartbeat_s
        self._reconnect_s = inf

    def offered(self, heartbeat_s: float, now_s: float) -> None:
        """A server has made an OFFER, which names its heartbeat."""
        self.has_server = True
        self._heartbeat_s = heartbeat_s
        self._heard_s = now_s
        self._next_ping_s = now_s + heartbeat_s

    def heard(self, now_s: float) -> None:
        """The server has sent a packet, or bytes of one."""
        self._heard_s = now_s

    def joined(self) -> None:
        """The server has answered a JOIN: the next waits are short again."""
        self._back_off_s = BACK_OFF_S[0]

    def pinged(self, now_s: float) -> None:
        """A PING was due."""
        self._next_ping_s = now_s + self._heartbeat_s

    def disconnected(self, jitter: float, now_s: float) -> None:
        """The connection was given up; each wait for a new one is twice as long as the last.

        Args:
            jitter: a random number from 0 to 1, so that the workers of one server do not all come back at once.
            now_s: the time.
        """
        if self.has_server:
            self.has_server = False
            self._lost_s = now_s
        self._reconnect_s = now_s + self._back_off_s * (1 + jitter) / 2
        self._back_off_s = min(2 * self._back_off_s, BACK_OFF_S[1])
        self._heard_s = inf
        self._next_ping_s = inf

    def paused(self, seconds: float) -> None:
        """This process was stopped for so long, and could not look for a server: its patience stood still."""
        self._lost_s += seconds

    # -- what is due

    @property
    def due_s(self) -> float:
        """When one of the questions below will be answered with yes."""
        return min(self._silent_s, self._next_ping_s, self._reconnect_s, self._give_up_s)

    def should_ping(self, now_s: float) -> bool:
        """Return whether a PING is due."""
        return now_s >= self._next_ping_s

    def should_reconnect(self, now_s: float) -> bool:
        """Return whether the wait for a new connection is over."""
        return now_s >= self._reconnect_s

    def should_give_up(self, now_s: float) -> bool:
        """Return whether the server has been away for longer than `patience_s`."""
        return now_s >= self._give_up_s

    def is_silent(self, now_s: float) -> bool:
        """Return whether the server has sent nothing for too long."""
        return now_s >= self._silent_s

    @property
    def _silent_s(self) -> float:
        return self._heard_s + MISSED * self._heartbeat_s

    @property
    def _give_up_s(self) -> float:
        return inf if self.has_server else self._lost_s + self.patience_s
