"""What clients remember from round to round, and nobody else ever sees: control variates, drifts, what was left over.

A memory is plain msgpack data. It advances with the client's work, whether its report arrives or not. Of each client
the two newest are kept: one that is asked again for the round that it worked for last starts from the one before. In a
folder they outlive the process, so one that takes a dead one's place goes on from there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack

from seedbus.bus.files import whole

KEPT = 2


class Memories:
    """folder: where they are kept, made when first needed; None: in this process alone."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._held: dict[int, dict[int, Any]] = {}

    def before(self, client: int, round: int) -> Any:
        """What the client remembered when `round` began; None: nothing."""
        held = self._of(client)
        earlier = [number for number in held if number < round]
        if not earlier:
            return None
        newest = max(earlier)
        if held[newest] is None:  # it is in the folder
            held[newest] = msgpack.unpackb(self._path(client, newest).read_bytes(), strict_map_key=False)
        return held[newest]

    def keep(self, client: int, round: int, memory: Any) -> None:
        """What the client remembers after its work for `round`; None: nothing, ever."""
        if memory is None:
            return
        held = self._of(client)
        held[round] = memory
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            with whole(self._path(client, round)) as file:
                file.write(msgpack.packb(memory))
            held[round] = None  # vectors of many clients would fill this process's memory
        for old in sorted(held)[:-KEPT]:
            self._drop(client, old)

    def forget(self, client: int) -> None:
        """The client has lost what it remembered."""
        for round in list(self._of(client)):
            self._drop(client, round)

    def _of(self, client: int) -> dict[int, Any]:
        if client not in self._held:
            files = [] if self._folder is None else self._folder.glob(f"{client}-*.memory")
            self._held[client] = {int(path.stem.partition("-")[2]): None for path in files}
        return self._held[client]

    def _drop(self, client: int, round: int) -> None:
        del self._held[client][round]
        if self._folder is not None:
            self._path(client, round).unlink(missing_ok=True)

    def _path(self, client: int, round: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{client}-{round}.memory"
