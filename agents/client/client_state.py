"""What clients remember from round to round, and nobody else ever sees: control variates, drifts, what was left over.

A memory is plain msgpack data. It advances with the client's work, whether its report arrives or not. What a client has
remembered is a chain, in the order of its work: asked again for a round that it has worked for, it starts from what it
knew then. So in a folder memories outlive the process, and one that takes a dead one's place, or a run that is resumed
at an earlier instant, does the same work over again and comes to the same chain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from seedbus.agents.errors import Forgotten, RunFolderError
from seedbus.bus.files import check_folder, make_folder, read, remove, whole

_NAME = re.compile(r"[0-9]{1,18}-[0-9]{1,18}\.(memory|loss)")
KEPT = 5
"""So many of each client: a run is resumed where its last round ended, and since then as many plans less one may have
reached a client, late ones of earlier rounds among them. A plan for work before these is new work to it."""


@dataclass(slots=True)
class _Link:
    """number: its place in the chain; round: the client's work for it, or its loss of everything, led to `memory`,
    which is in the folder if there is one; is_found: another process made it."""

    number: int
    round: int
    is_loss: bool
    memory: Any = None
    is_found: bool = False

    @property
    def name(self) -> str:
        return f"{self.number}-{self.round}.{'loss' if self.is_loss else 'memory'}"


class ClientStateStore:
    """folder: where they are kept, in a folder for each client, made when first needed, a run's own; None: in this
    process alone."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._chains: dict[int, list[_Link]] = {}

    def before(self, client: int, round: int) -> Any:
        """What the client knew before its work for a round, or knows now; None: nothing.

        Raises `Forgotten` where another process did that work, and what it began with is not kept.
        """
        chain = self._chain(client)
        place = next((at for at, link in enumerate(chain) if link.round == round and not link.is_loss), len(chain))
        if not place and chain and chain[0].number:
            if chain[0].is_found:
                raise Forgotten(client, round)
            place = len(chain)
        return self._read(client, chain[place - 1]) if place else None

    def keep(self, client: int, round: int, memory: Any) -> None:
        """What the client remembers after its work for `round`; None: nothing, ever."""
        if memory is not None:
            self._add(client, round, memory, is_loss=False)

    def forget(self, client: int, round: int) -> None:
        """The client has lost what it remembered, before it was asked in that round."""
        chain = self._chain(client)
        if chain and all(link.round < round for link in chain):  # otherwise the same once more
            self._add(client, round, None, is_loss=True)

    def _add(self, client: int, round: int, memory: Any, *, is_loss: bool) -> None:
        chain = self._chain(client)
        if any((link.round, link.is_loss) == (round, is_loss) for link in chain):
            return  # the same once more
        link = _Link(chain[-1].number + 1 if chain else 0, round, is_loss)
        if self._folder is None:
            link.memory = memory
        else:  # vectors of many clients would fill this process
            make_folder(self._folder / str(client))
            with whole(self._folder / str(client) / link.name) as file:
                file.write(msgpack.packb(memory))
        chain.append(link)
        while len(chain) > KEPT:
            old = chain.pop(0)
            if self._folder is not None:
                remove(self._folder / str(client) / old.name)

    def _chain(self, client: int) -> list[_Link]:
        if client not in self._chains:
            links = map(_found, _listed(self._folder / str(client))) if self._folder else ()
            self._chains[client] = sorted(links, key=lambda link: link.number)
        return self._chains[client]

    def _read(self, client: int, link: _Link) -> Any:
        if self._folder is None:
            return link.memory
        path = self._folder / str(client) / link.name
        try:
            return msgpack.unpackb(read(path), strict_map_key=False)
        except (ValueError, msgpack.UnpackException) as error:
            raise RunFolderError(path, f"what the client remembers is damaged ({type(error).__name__})") from None


def _listed(folder: Path) -> list[Path]:
    """What is whole of a client's memories; of many clients there is nothing at all."""
    return [file for file in folder.iterdir() if _NAME.fullmatch(file.name)] if check_folder(folder) else []


def _found(file: Path) -> _Link:
    number, round = map(int, file.stem.split("-"))
    return _Link(number, round, file.suffix == ".loss", is_found=True)
