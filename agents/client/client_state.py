"""The state that clients keep from round to round and never send: control variates, drifts, residuals of compression.

A client's state, its memory, is plain msgpack data. It advances with the client's work, whether the report arrives or
not. The memories of a client form a chain in the order of its work: if it is asked again for a round that it has worked
for, it starts from the memory that it had then. Memories in a folder outlive the process. So a process that replaces a
dead one, or a run that is resumed at an earlier round, repeats the same work and comes to the same chain. A file begins
with a digest, so that a memory that is damaged, or in the place of another, is refused.

The server knows which work may be repeated. Where the folder is the run's, it removes the other memories whenever a
round is durable (`prune`): a vector of a large model takes as much room as the model, for each client.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from seedbus.agents.errors import Forgotten, RunFolderError
from seedbus.algorithms.contract import Algorithm, BadPayload
from seedbus.bus.files import PRIVATE, atomic_write, check_folder, make_folder, read, remove
from seedbus.discovery import PluginError

_NAME = re.compile(r"[0-9]{1,18}-[0-9]{1,18}\.(memory|loss)")
_DIGEST_BYTES = 16
KEPT = 5
"""How many memories of each client are kept where nobody calls `prune`, and between two calls. A run is resumed where
its last durable round ended; since then up to `KEPT` − 1 plans may have reached a client, late ones of earlier rounds
among them. A plan for work that is older than these counts as new work. Before a process has worked itself it means
that the run goes on from an earlier round, because its journal has lost more: that work cannot be repeated."""
KEPT_DURABLE = 2
"""How many of them `prune` keeps of a run that goes on: one more than needed, for a journal that lost a round."""


@dataclass(slots=True)
class _Link:
    """One link of a client's chain.

    Attributes:
        number: its place in the chain, from 0.
        round: the round of the client's work.
        is_loss: whether the client lost its memory in that round, instead of working.
        memory: the memory after that; None if it is in the folder.
        is_of_another: whether another process made the link.
    """

    number: int
    round: int
    is_loss: bool
    memory: Any = None
    is_of_another: bool = False

    @property
    def name(self) -> str:
        return f"{self.number}-{self.round}.{'loss' if self.is_loss else 'memory'}"


class ClientStateStore:
    """The memories of clients.

    Args:
        folder: where they are kept, one folder for each client, created when it is first needed. It belongs to one run.
            None: they are kept in this process only.
        algorithm: checks what is read from the folder.
        on_first: is called when the first memory is kept.
    """

    def __init__(
        self,
        folder: Path | None = None,
        algorithm: Algorithm | None = None,
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._algorithm = algorithm
        self._on_first = on_first
        self._has_kept = False
        self._chains: dict[int, list[_Link]] = {}

    def before(self, client: int, round: int) -> Any:
        """Return the client's memory from before its work for a round; its newest if it has not worked for it.

        Returns:
            The memory, or None if the client had none.

        Raises:
            Forgotten: another process did that work, or later work only, and the memory from before it is not kept.
        """
        chain = self._chain(client)
        if not chain:
            return None
        place = next((at for at, link in enumerate(chain) if link.round == round and not link.is_loss), len(chain))
        if chain[0].number > 0:  # older memories are deleted
            is_older = all(link.is_of_another and round < link.round for link in chain)
            if is_older or (place == 0 and chain[0].is_of_another):
                raise Forgotten(client, round)
            place = place or len(chain)
        return self._read(client, chain[place - 1]) if place else None

    def knows(self, client: int) -> bool:
        """Return whether the client has a memory here, or has lost one."""
        return bool(self._chain(client))

    def keep(self, client: int, round: int, memory: Any) -> None:
        """Keep the client's memory from after its work for a round; None: its algorithm has none."""
        if memory is None:
            return
        self._add(client, round, memory, is_loss=False)
        if not self._has_kept:
            self._has_kept = True
            self._on_first()

    def forget(self, client: int, round: int) -> None:
        """The client has lost its memory, before it was asked in that round."""
        chain = self._chain(client)
        if chain and all(link.round < round for link in chain):  # otherwise this loss is repeated work
            self._add(client, round, None, is_loss=True)

    def _add(self, client: int, round: int, memory: Any, *, is_loss: bool) -> None:
        chain = self._chain(client)
        if any((link.round, link.is_loss) == (round, is_loss) for link in chain):
            return  # repeated work
        link = _Link(chain[-1].number + 1 if chain else 0, round, is_loss)
        if self._folder is None:
            link.memory = memory
        else:  # the vectors of many clients would not fit into this process
            make_folder(self._folder / str(client))
            with atomic_write(self._folder / str(client) / link.name, PRIVATE) as file:
                packed = self._packed(memory)
                file.write(_digest(client, link, packed) + packed)
        chain.append(link)
        while len(chain) > KEPT:
            old = chain.pop(0)
            if self._folder is not None:
                remove(self._folder / str(client) / old.name)

    def _packed(self, memory: Any) -> bytes:
        try:
            packed: bytes = msgpack.packb(memory)
        except (TypeError, ValueError, OverflowError) as error:  # of a plug-in; such as an array
            name = "the algorithm" if self._algorithm is None else self._algorithm.facts.label
            accepted = "expected None, numbers, texts, bytes, and lists and mappings of these"
            raise PluginError(f"what a client of {name} remembers cannot be kept: {error}; {accepted}") from None
        return packed

    def _chain(self, client: int) -> list[_Link]:
        if client not in self._chains:
            links = map(_link_of, _listed(self._folder / str(client))) if self._folder else ()
            self._chains[client] = sorted(links, key=lambda link: link.number)
        return self._chains[client]

    def _read(self, client: int, link: _Link) -> Any:
        if self._folder is None:
            return link.memory
        path = self._folder / str(client) / link.name
        content = read(path)
        digest, packed = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if digest != _digest(client, link, packed):
            raise RunFolderError(path, "the client's memory is damaged, or of an older build: it has another digest")
        try:
            memory = msgpack.unpackb(packed, strict_map_key=False)
            if memory is not None and self._algorithm is not None:
                self._algorithm.check_memory(memory)
        except BadPayload as error:
            raise RunFolderError(path, f"the client's memory is damaged: {error}") from None
        except (ValueError, TypeError, msgpack.UnpackException) as error:  # TypeError: a key that no map can have
            raise RunFolderError(path, f"the client's memory is damaged ({type(error).__name__})") from None
        return memory


def prune(
    folder: Path, clients: Iterable[int] | None, round: int, under_way: Iterable[tuple[int, int]], kept: int
) -> None:
    """Remove memories that no work needs any more, once a round is durable.

    Args:
        folder: that of `ClientStateStore`.
        clients: whose; None: those of all clients.
        round: the first one whose work may be done, or done again, after this.
        under_way: (client, round) of earlier plans that a client may yet work at, for the first time or again.
        kept: how many memories of each client stay at least.
    """
    if not check_folder(folder):
        return
    needed: dict[int, list[int]] = {}
    for client, earlier in under_way:
        needed.setdefault(client, []).append(earlier)
    places = folder.iterdir() if clients is None else (folder / str(client) for client in clients)
    for place in places:
        if place.name.isdecimal():
            chain = sorted(map(_link_of, _listed(place)), key=lambda link: link.number)
            rounds = [round, *needed.get(int(place.name), ())]
            first = min(len(chain) - kept, *(_needed(chain, each) for each in rounds))
            for link in chain[: max(0, first)]:
                remove(place / link.name)


def bytes_of_a_client(folder: Path) -> int:
    """Return how many bytes a client's newest memory takes, the mean of clients that have one; 0: none has."""
    newest = []
    for place in folder.iterdir() if check_folder(folder) else ():
        if place.name.isdecimal() and (files := _listed(place)):
            newest.append(max(files, key=lambda file: _link_of(file).number).stat().st_size)
    return sum(newest) // max(1, len(newest))


def _needed(chain: list[_Link], round: int) -> int:
    """Return the place of the first link that a client needs to work for a round, or to do so again."""
    done = next((at for at, link in enumerate(chain) if link.round == round and not link.is_loss), None)
    if done is not None:
        return done - 1
    return max((at for at, link in enumerate(chain) if link.round < round), default=0)


def _digest(client: int, link: _Link, packed: bytes) -> bytes:
    return hashlib.blake2b(f"{client}/{link.name} ".encode() + packed, digest_size=_DIGEST_BYTES).digest()


def _listed(folder: Path) -> list[Path]:
    """The files of a client's memories that are complete; many clients have no folder."""
    return [file for file in folder.iterdir() if _NAME.fullmatch(file.name)] if check_folder(folder) else []


def _link_of(file: Path) -> _Link:
    number, round = map(int, file.stem.split("-"))
    return _Link(number, round, file.suffix == ".loss", is_of_another=True)
