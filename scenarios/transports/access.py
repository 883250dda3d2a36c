"""Where a run's server listens, which keys it uses, and which rights connecting peers have."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbus.agents.errors import Unfinishable
from seedbus.bus import Registration
from seedbus.bus.errors import BadKey
from seedbus.bus.transport import ANYBODY, OPERATOR, STRANGER, Rights

if TYPE_CHECKING:
    from seedbus.bus.zeromq.keys import Identity, KeyPair, Table
    from seedbus.scenarios.launchers.launcher import Share

SERVER_KEY = "server"


class Access:
    """Where a run's server listens, which keys it uses, and which rights peers have.

    Attributes:
        endpoint: where the server listens.
        own: an address in a folder that only this user may enter; peers that use it have the operator's rights. "":
            none.
        keys: the server's key pair; None: no encryption.
        workers: the keys of the server's own processes on an endpoint that others can reach too.
    """

    def __init__(
        self,
        context: Any,
        endpoint: str,
        own: str,
        *,
        keys: KeyPair | None = None,
        table: Table | None = None,
        trusts_all: bool = False,
    ) -> None:
        from seedbus.bus.zeromq.keys import Authenticator

        self.endpoint = endpoint
        self.own = own
        self.keys = keys
        self.workers = WorkerKeys(None if table is not None else keys)
        self._table = table
        self._trusts_all = trusts_all
        self._reported_complaint = ""
        self._authenticator = None if keys is None else Authenticator(context, self._admits)

    @classmethod
    def for_clients(cls, context: Any, endpoint: str, own: str, *, keys: Path | None, trusts_all: bool) -> Access:
        """Return the access to a server whose clients run in processes that it did not start.

        Args:
            context: the ZeroMQ context.
            endpoint: where these processes connect to.
            own: the address for the server's own processes.
            keys: the folder with the server's keys and the table of authorised keys; None: no encryption.
            trusts_all: whether every peer has all rights.

        Raises:
            BadKey: the server's key cannot be read or written.
        """
        if keys is None:
            return cls(context, endpoint, own, trusts_all=trusts_all)
        from seedbus.bus.zeromq.keys import TABLE, Table

        pair = server_keys(keys)
        return cls(context, endpoint, own, keys=pair, table=Table(keys / TABLE), trusts_all=trusts_all)

    @classmethod
    def for_workers(cls, context: Any, endpoint: str, own: str, *, is_encrypted: bool) -> Access:
        """Return the access to a server whose clients run in its own processes.

        Args:
            context: the ZeroMQ context.
            endpoint: where these processes connect to.
            own: the address in a private folder; "": none.
            is_encrypted: whether to make keys for this run, which its processes get.
        """
        from seedbus.bus.zeromq.keys import KeyPair

        return cls(context, endpoint, own, keys=KeyPair.new() if is_encrypted else None)

    def rights(self, is_own: bool, user: str) -> Rights | None:
        """Return the rights of a peer; None: it may not connect.

        Args:
            is_own: whether the peer uses the server's own address.
            user: the peer's public key; "" without encryption.
        """
        if is_own:
            return OPERATOR
        if self._trusts_all:
            return ANYBODY
        return STRANGER if self.keys is None else self._rights_of(user)

    def _rights_of(self, user: str) -> Rights | None:
        return self.workers.rights(user) if self._table is None else self._table.rights(user)

    def _admits(self, user: str) -> bool:
        return self._rights_of(user) is not None if self._table is None else self._table.admits(user)

    def report(self, registration: Registration) -> None:
        """Report refused keys, and a table of keys that cannot be used.

        Raises:
            Unfinishable: the thread that checks keys has ended.
        """
        if self._authenticator is None:
            return
        while self._authenticator.rejected:
            key = self._authenticator.rejected.pop()
            registration.refused(f"key {key}", "not-authorised", "this key is not authorised")
        complaint = "" if self._table is None else self._table.complaint
        if complaint and complaint != self._reported_complaint:
            registration.refused("the table of keys", "not-authorised", complaint)
        self._reported_complaint = complaint
        if not self._authenticator.is_alive:
            raise Unfinishable("the thread that checks keys has ended; every closed round is kept")

    def close(self) -> None:
        """End the thread that checks keys."""
        if self._authenticator is not None:
            self._authenticator.close()


class WorkerKeys:
    """The keys of a run's own processes, one for each process that starts; see `launchers.worker_processes.Keys`.

    Args:
        server: the server's key pair; None: it requires no keys of them.
    """

    def __init__(self, server: KeyPair | None) -> None:
        self._server = server
        self._rights: dict[str, Rights] = {}  # by public key; ZeroMQ's thread reads it

    def issue(self, share: Share | None) -> Identity | None:
        """Return a new key for a process; share: what it may host; None: anything."""
        if self._server is None:
            return None
        from seedbus.bus.zeromq.keys import Identity, KeyPair

        pair = KeyPair.new()
        self._rights[pair.public.decode()] = OPERATOR if share is None else share.rights
        return Identity(pair, self._server.public)

    def revoke(self, identity: Identity) -> None:
        """Let a key in no more; a process that has come with it is sent away within a heartbeat."""
        self._rights.pop(identity.own.public.decode(), None)

    def rights(self, user: str) -> Rights | None:
        """Return what the process with this public key may ask for; None: nothing."""
        return self._rights.get(user)


def server_keys(folder: Path) -> KeyPair:
    """Return the key pair of this user's servers, after creating it if there is none. Raises `BadKey`."""
    from seedbus.bus.zeromq.keys import SECRET, KeyPair

    if not (folder / f"{SERVER_KEY}{SECRET}").exists():
        with suppress(BadKey):  # another server has just made it; any other error is raised by `load`
            KeyPair.new().save(folder, SERVER_KEY)
    return KeyPair.load(folder / f"{SERVER_KEY}{SECRET}")
