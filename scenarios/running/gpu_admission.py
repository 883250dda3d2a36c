"""Processes that share a GPU: one after the other is measured in a first round, before its run begins.

    turn     a file that one process at a time locks, while it loads its data and computes a first round
    places   a file of each process that was measured, locked while the process lives: what it took

torch keeps the memory that it has taken, so what a first round needed stays the process's own, and no other process can
take it in the middle of the run. A process of the same run that comes later needs as much: if less is free, it ends
before the run begins. What a run in one process takes is known from its own first round alone: if it does not fit,
memory runs out there, and not in the middle of other runs. The system releases locks when a process ends, however it
ends.

A process makes one run at a time (its device is one for all that it binds, and the processes of a study are given their
runs one by one), so there are no turns within a process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from seedbus.agents.client.forging import Forging
from seedbus.agents.client.worker import Followers
from seedbus.bus import Follower, Offer, Recruit
from seedbus.bus.files import descriptor
from seedbus.bus.transport import count_of
from seedbus.models.device import GpuMemory, gpu_memory, gpu_name, hold_memory, release_memory
from seedbus.models.errors import DataError
from seedbus.models.task import Note
from seedbus.scenarios.running.limits import gib, replica_bytes, replicas_of
from seedbus.scenarios.schema.scenario import Scenario

Measure = Callable[[Callable[[], None], int], None]
"""Takes a first round and computes it, and the bytes that later rounds will take beyond it."""
TURN = "turn"
RUNTIME = "XDG_RUNTIME_DIR"


class GpuAdmission:
    """A process's place on its device; other devices than a GPU have no places, and nothing is measured there.

    Args:
        device: where the process computes.
        note: is told when it waits for its turn, and what it took.
    """

    def __init__(self, device: str, note: Note) -> None:
        self._device = device
        self._note = note
        self._places: list[BinaryIO] = []  # their locks last as long as these files are open

    @contextmanager
    def turn(self, run: bytes) -> Iterator[Measure]:
        """Within this context, until it is measured, no other process is. Nothing of the run may be on the device yet.

        Args:
            run: what all processes of a run have in common.

        Yields:
            The function that measures, and ends the turn; more calls do nothing.

        Raises:
            DataError: less memory is free than a process of this run takes, or processes have no folder to find each
                other in.
        """
        name = gpu_name(self._device)
        if name is None:
            yield _nothing
            return
        self.close()  # of the run before, if this process was sent to another
        folder = _folder(name)
        prefix = hashlib.blake2b(run, digest_size=8).hexdigest()
        with ExitStack() as turn:
            turn.enter_context(self._locked(folder / TURN))
            release_memory(self._device)
            before = gpu_memory(self._device)  # the first reading, which itself takes memory: not out of turn
            sizes = _sizes(folder, prefix)
            if sizes and before.free < max(sizes):
                raise self._refusal(max(sizes), len(sizes), before)

            def measure(first_round: Callable[[], None], later: int) -> None:
                if self._places:
                    return
                first_round()
                hold_memory(self._device, later)
                after = gpu_memory(self._device)
                self._keep(folder, prefix, max(before.free - after.free, after.peak), after)
                turn.close()

            yield measure

    def close(self) -> None:
        """Give the process's places up; its end does so too."""
        for place in self._places:
            place.close()
        self._places.clear()

    def _keep(self, folder: Path, prefix: str, size: int, after: GpuMemory) -> None:
        """Take a place; other processes find it, and what it takes, until this one ends."""
        path = folder / f"{prefix}-{os.getpid()}-{os.urandom(4).hex()}"
        place = open(descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), "wb+")
        fcntl.flock(place, fcntl.LOCK_EX)
        place.write(b"%d" % size)
        place.flush()
        self._places.append(place)
        self._note("measured", device=self._device, takes=gib(size), free=gib(after.free), total=gib(after.total))

    def _refusal(self, size: int, processes: int, memory: GpuMemory) -> DataError:
        takes = f"each of {processes} takes" if processes > 1 else "one takes"
        room = f"{gib(memory.free)} of {gib(memory.total)} are free, and {takes} {gib(size)}"
        share = max(1, 1000 // processes) / 1000  # rounded down, so that Ray has room for as many
        return DataError(
            self._device,
            f"not enough memory for another process of this run: {room}",
            f"--workers {processes} for each GPU (under Ray --launch worker_gpus={share:g})",
        )

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        with open(descriptor(path, os.O_RDWR | os.O_CREAT), "rb+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._note("turn", device=self._device, waits="another process is being measured")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def turn_of_one_process(device: str, note: Note) -> Iterator[Measure]:
    """Within this context a run's only process has its place on a device; see `GpuAdmission.turn`."""
    with closing(GpuAdmission(device, note)) as admission, admission.turn(os.urandom(16)) as measure:
        yield measure


def measuring(recruit: Recruit, scenario: Scenario, measure: Measure) -> Recruit:
    """Return the function that creates a scenario's clients, as one that also measures their first round."""
    participation = scenario.participation

    def followers(offer: Offer) -> Follower:
        follower = recruit(offer)
        if isinstance(follower, Followers | Forging):
            later = (replicas_of(scenario, count_of(offer.spans)) - 1) * replica_bytes(scenario)
            measure(lambda: follower.try_first_round(participation.cohort or participation.clients), later)
        return follower

    return followers


def _nothing(first_round: Callable[[], None], later: int) -> None:
    """Measure nothing."""


def _sizes(folder: Path, prefix: str) -> list[int]:
    """Return what each living process of a run has taken, and remove the places of those that ended."""
    sizes = []
    for path in folder.iterdir():
        if path.name == TURN:
            continue
        with open(descriptor(path, os.O_RDWR), "rb+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if path.name.startswith(f"{prefix}-"):
                    size = file.read(20)  # empty until the process has written it
                    sizes.append(int(size) if size.isdigit() else 0)
                continue
            with suppress(FileNotFoundError):
                path.unlink()
    return sizes


def _folder(name: str) -> Path:
    """Return the folder in which processes of this user that share a GPU find each other.

    Raises:
        DataError: it is another user's, or cannot be made.
    """
    runtime = os.environ.get(RUNTIME, "")
    is_given = os.path.isdir(runtime) and os.access(runtime, os.W_OK)
    folder = Path(runtime) / "seedbus" if is_given else Path(tempfile.gettempdir()) / f"seedbus-{os.getuid()}"
    expected = f"{RUNTIME}, a folder of your own"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
        if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
            raise DataError(folder, "a folder of another user, or no folder", expected)
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise DataError(folder, f"no folder that can be written ({error.strerror})", expected) from None
    return folder / name
