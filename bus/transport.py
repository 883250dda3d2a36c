"""What a transport is: it moves opaque frames to addresses, and knows nothing else.

`MemoryTransport` moves them within the process. The bus decides when a frame is due; a transport never delays,
reorders, drops or looks inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from seedbus.bus.errors import UnknownAddress

Receiver = Callable[[bytes], None]


class Transport(Protocol):
    """A way to move frames."""

    def listen(self, address: int, receiver: Receiver) -> None:
        """Call `receiver` with every frame for `address`, one after another, in the order of `carry`."""
        ...

    def carry(self, address: int, frame: bytes) -> None:
        """Move a frame to `address`. Raises `UnknownAddress` if nobody listens there."""
        ...

    def framing_bytes(self, size: int) -> int:
        """What moving an envelope of `size` bytes costs on the wire beyond the envelope itself."""
        ...

    def close(self) -> None:
        """Stop moving frames; safe to call twice."""
        ...


class MemoryTransport:
    """Frames handed over within the process: no framing, no time, no copies."""

    def __init__(self) -> None:
        self._receivers: dict[int, Receiver] = {}

    def listen(self, address: int, receiver: Receiver) -> None:
        self._receivers[address] = receiver

    def carry(self, address: int, frame: bytes) -> None:
        receiver = self._receivers.get(address)
        if receiver is None:
            raise UnknownAddress(address)
        receiver(frame)

    def framing_bytes(self, size: int) -> int:
        return 0

    def close(self) -> None:
        self._receivers.clear()
