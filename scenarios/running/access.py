"""Where a run's server listens, with which keys, and what those who come in may ask for."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbus.agents.errors import Unfinishable
from seedbus.bus import Registration
from seedbus.bus.errors import BadKey
from seedbus.bus.transport import ANYBODY, OPERATOR, STRANGER, Rights

if TYPE_CHECKING:
    from seedbus.bus.zeromq.keys import KeyPair, Table

SERVER_KEY = "server"


class Access:
    """Where a run's server listens, with which keys, and what those who come in may ask for.

    own: an address in a folder that only this user may enter: whoever comes that way is the operator's. transport,
    bind, keys, evaluator: as a `Placement` has them. Afterwards, keys: the server's pair; identity: the keys of this
    run's own processes, where they come by an address that others reach too.
    """

    def __init__(
        self, own: str, context: Any, *, transport: str, bind: str | None, keys: Path | None, evaluator: str
    ) -> None:
        from seedbus.bus.zeromq.keys import TABLE, Authenticator, Identity, KeyPair, Table

        self.own, self.keys, self.identity = own, None, None
        self._trusts_all = bind is not None and evaluator == "anybody"
        self._table: Table | None = None
        self._complaint = ""
        if bind is not None:
            self.endpoint = bind
            if keys is not None:
                self.keys, self._table = server_keys(keys), Table(keys / TABLE)
        elif transport == "inproc":
            self.endpoint = "inproc://seedbus"
        elif transport == "ipc":
            self.endpoint = own
        else:
            self.endpoint = "tcp://127.0.0.1:*"
            self.keys, own_keys = KeyPair.new(), KeyPair.new()
            self.identity = Identity(own_keys, self.keys.public)
        self._doorkeeper = None if self.keys is None else Authenticator(context, self._admits)

    def rights(self, is_own: bool, user: str) -> Rights | None:
        if is_own:
            return OPERATOR
        if self._trusts_all:
            return ANYBODY
        return STRANGER if self.keys is None else self._rights_of(user)

    def _rights_of(self, user: str) -> Rights | None:
        if self.identity is not None:
            return OPERATOR if user.encode() == self.identity.own.public else None
        return None if self._table is None else self._table.rights(user)

    def _admits(self, user: str) -> bool:
        return self._rights_of(user) is not None if self._table is None else self._table.admits(user)

    def tell(self, registration: Registration) -> None:
        """Name the keys that were turned away, and a table that lets nobody in."""
        if self._doorkeeper is None:
            return
        while self._doorkeeper.rejected:
            key = self._doorkeeper.rejected.pop()
            registration.refused(f"key {key}", "not-authorised", "this key is not authorised")
        complaint = "" if self._table is None else self._table.complaint
        if complaint and complaint != self._complaint:
            registration.refused("the table of keys", "not-authorised", f"{complaint}; until then nobody is let in")
        self._complaint = complaint
        if not self._doorkeeper.is_alive:
            raise Unfinishable("the thread that checks keys has ended; every closed round is kept")

    def close(self) -> None:
        if self._doorkeeper is not None:
            self._doorkeeper.close()


def server_keys(folder: Path) -> KeyPair:
    """The keys of the servers of this user; made, if there are none. Raises `BadKey`."""
    from seedbus.bus.zeromq.keys import SECRET, KeyPair

    if not (folder / f"{SERVER_KEY}{SECRET}").exists():
        with suppress(BadKey):  # another server was faster: what follows says what is wrong otherwise
            KeyPair.new().save(folder, SERVER_KEY)
    return KeyPair.load(folder / f"{SERVER_KEY}{SECRET}")


def is_public(bind: str) -> bool:
    """Whether processes of other machines may reach an endpoint."""
    if not bind.startswith("tcp://"):
        return False
    host = bind.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    return host not in ("localhost", "lo", "::1") and not host.startswith("127.")
