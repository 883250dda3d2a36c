"""Messages as function calls within one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from seedbus.scenarios.transports.contract import Connect, Hosting


class Memory:
    """The transport in memory; see `TransportKind`."""

    name = "memory"
    summary = "function calls in one process"
    reaches_processes = False
    reaches_nodes = False

    @contextmanager
    def connected(self, hosting: Hosting) -> Iterator[Connect]:
        from seedbus.bus import MemoryTransport

        is_virtual = hosting.spec.is_virtual
        yield lambda run: MemoryTransport(hosting.recruit, offload=not is_virtual, gathers=is_virtual)
