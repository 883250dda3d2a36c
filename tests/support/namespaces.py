"""Machines made of Linux network namespaces, and the wires between them: latency, bandwidth, loss, and cuts.

A machine is a network namespace with an address of its own and a tun device as its only interface. The kernel's IP and
TCP run in it as on any machine; what leaves the tun device is read here, by the thread of `Machines`, which delays,
loses or drops each packet as the `Wire` in that direction says, and writes it to the tun device of its destination. So
TCP meets real round trips, queues and retransmissions, also where the kernel has no netem, the queueing discipline that
does the same; and each direction can be cut alone.

A namespace lives as long as the process that holds it, and this ends when the pipe to it is closed: nothing is left
behind, even when the process of the tests is killed. Linux only; needs /dev/net/tun and the right to make namespaces.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from processes import HANGS_S, kill, seedbus, wait_for

TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000  # IP packets, without a header of the device's own
_PREFIX = "10.77.0."
_MTU = 1500
_QUEUE = 1000  # packets that wait on a wire; later ones are lost, as with netem
_JOIN_S = 5.0
_GREETING = 9  # packets of a connection, both ways, once its ends are about to prove who they are


class Refused(OSError):
    """The kernel does not allow namespaces here, or a part of what they need; the reason is the kernel's."""


@dataclass
class Wire:
    """One direction between two machines. The settings may be changed at any time.

    Attributes:
        latency_s: from the end of a packet's transmission to its arrival, seconds.
        mbps: bandwidth in Mbit/s, of whole IP packets; 0: unlimited.
        loss: the probability that a packet is lost.
        is_cut: whether every packet is dropped.
        packets: packets delivered.
        bytes: bytes of these, with the headers of IP and TCP.
        lost: packets lost by chance or for want of a place in the queue.
        dropped: packets dropped because the wire was cut.
    """

    latency_s: float = 0.0
    mbps: float = 0.0
    loss: float = 0.0
    is_cut: bool = False
    packets: int = 0
    bytes: int = 0
    lost: int = 0
    dropped: int = 0
    free_s: float = 0.0
    waiting: int = 0

    def arrival_s(self, size: int, now_s: float, chance: float) -> float | None:
        """Return when a packet arrives that is sent now; None if it never does.

        Args:
            size: its bytes.
            now_s: the time.
            chance: drawn evenly from 0 to 1.
        """
        if self.is_cut:
            self.dropped += 1
            return None
        if chance < self.loss or self.waiting >= _QUEUE:
            self.lost += 1
            return None
        if self.mbps:
            self.free_s = max(self.free_s, now_s) + size * 8e-6 / self.mbps
        self.waiting += 1
        return max(self.free_s, now_s) + self.latency_s


class Machine:
    """A network namespace.

    Args:
        name: what it is called in messages.
        number: the last byte of its address.

    Attributes:
        address: its IPv4 address.
        tun: the descriptor that its packets are read from and written to.
        processes: what was started there.

    Raises:
        Refused: the kernel does not allow it.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.address = f"{_PREFIX}{number}"
        self.processes: list[subprocess.Popen[str]] = []
        self.tun = -1
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        try:  # in a session of its own, or Ctrl-C would end it before the processes that are in it
            holder = ["unshare", "--net", "sh", "-c", "echo made; exec cat"]
            self._holder = subprocess.Popen(holder, text=True, start_new_session=True, **pipes)
        except OSError as error:
            raise Refused(f"unshare: {error.strerror}") from None
        try:
            assert self._holder.stdout is not None
            if self._holder.stdout.readline() != "made\n":
                assert self._holder.stderr is not None
                raise Refused(self._holder.stderr.read().strip())
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        try:
            self.tun = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
            request = struct.pack("16sH22x", b"seedbus%d", _IFF_TUN | _IFF_NO_PI)  # the kernel finds a free number
            made = fcntl.ioctl(self.tun, _TUNSETIFF, request)
        except OSError as error:
            raise Refused(f"{TUN}: {error.strerror}") from None
        self._device = made[:16].rstrip(b"\0").decode()
        _command("ip", "link", "set", "dev", self._device, "netns", str(self._holder.pid))
        self._ip("link", "set", "dev", "lo", "up")
        self._ip("address", "add", f"{self.address}/24", "dev", self._device)
        self.plug()

    def close(self) -> None:
        """End what was started here, and the namespace."""
        for process in self.processes:
            if process.poll() is None:
                kill(process.pid, signal.SIGKILL)
            process.communicate()
        if self.tun >= 0:
            os.close(self.tun)
        self._holder.communicate()  # closes its pipe

    def unplug(self) -> None:
        """Take the interface down, as when a cable is pulled: here the kernel knows, elsewhere nobody does."""
        self._ip("link", "set", "dev", self._device, "down")

    def plug(self) -> None:
        self._ip("link", "set", "dev", self._device, "mtu", str(_MTU), "up")

    def seedbus(self, *arguments: object, within: Sequence[str] = (), **options: Any) -> subprocess.Popen[str]:
        """Start the command on this machine; `within`: the command that runs it there."""
        process = seedbus(*arguments, within=[*self.within, *within], **options)
        self.processes.append(process)
        return process

    @property
    def namespace(self) -> str:
        """The file that names it."""
        return f"/proc/{self._holder.pid}/ns/net"

    @property
    def within(self) -> list[str]:
        """The command that runs another on this machine."""
        return ["nsenter", f"--net={self.namespace}"]

    def _ip(self, *arguments: str) -> None:
        _command(*self.within, "ip", *arguments)


class Machines:
    """A context of machines that reach each other over wires.

    Args:
        names: the machines.
        seed: of the draws of losses.

    Attributes:
        wires: (from, to) → the wire in this direction.

    Raises:
        Refused: the kernel does not allow it.
    """

    def __init__(self, *names: str, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._arriving: list[tuple[float, int, bytes, Wire, int]] = []  # heap: when, count, packet, wire, to which tun
        self._count = 0
        self._thread = threading.Thread(target=self._carry, name="wires", daemon=True)
        self._waking, self._wake = os.pipe()
        with ExitStack() as made:
            made.callback(os.close, self._waking)
            made.callback(os.close, self._wake)
            self.machines: dict[str, Machine] = {}
            for number, name in enumerate(names, 1):
                self.machines[name] = Machine(name, number)
                made.callback(self.machines[name].close)
            self._made = made.pop_all()
        self.wires = {(near, far): Wire() for near in names for far in names if near != far}
        self._by_address = {socket.inet_aton(each.address): each for each in self.machines.values()}

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(self._wake, b"\0")
        self._thread.join(_JOIN_S)
        assert not self._thread.is_alive(), "the thread of the wires hangs"
        self._made.close()

    def between(self, near: str, far: str) -> tuple[Wire, Wire]:
        """Return the wires of both directions."""
        return self.wires[near, far], self.wires[far, near]

    def link(self, near: str, far: str, **settings: float) -> None:
        """Set fields of the wires of both directions."""
        for wire in self.between(near, far):
            for name, value in settings.items():
                setattr(wire, name, value)

    def _carry(self) -> None:
        """Read packets and write those that are due, until the pipe is written to."""
        by_tun = {machine.tun: machine for machine in self.machines.values()}
        waits = [self._waking, *by_tun]
        while True:
            wait_s = max(0.0, self._arriving[0][0] - time.monotonic()) if self._arriving else None
            ready, _, _ = select.select(waits, [], [], wait_s)
            if self._waking in ready:
                return
            for tun in ready:
                self._take(by_tun[tun])
            now_s = time.monotonic()
            while self._arriving and self._arriving[0][0] <= now_s:
                _, _, packet, wire, tun = heapq.heappop(self._arriving)
                wire.waiting -= 1
                if wire.is_cut:
                    wire.dropped += 1
                    continue
                wire.packets += 1
                wire.bytes += len(packet)
                with suppress(OSError):  # the device is down, or its queue is full: the packet is lost
                    os.write(tun, packet)

    def _take(self, near: Machine) -> None:
        for _ in range(64):  # then what is due has its turn
            try:
                packet = os.read(near.tun, _MTU)
            except OSError:  # no packet is there
                return
            far = self._by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            if far is None or far is near:
                continue  # IPv6 looks for neighbours of its own accord
            wire = self.wires[near.name, far.name]
            arrival_s = wire.arrival_s(len(packet), time.monotonic(), self._random.random())
            if arrival_s is not None:
                self._count += 1
                heapq.heappush(self._arriving, (arrival_s, self._count, packet, wire, far.tun))


class Federation:
    """The server and the workers of a run, each on its machine, with keys.

    Args:
        machines: `server`, `worker 0`, …
        folder: where keys, scenario and run are put.
        scenario: the file of the scenario.
        shares: the clients of each worker, like 0-24; its key is for these alone.
        in_turn: whether workers start once the server listens, so that none of them connects in vain.

    Attributes:
        run: the run's folder.
        greeted: when all workers had a connection, if they started in turn.
    """

    PORT = 5555

    def __init__(
        self, machines: Machines, folder: Path, scenario: Path, shares: list[str], *, in_turn: bool = False
    ) -> None:
        from seedbus.bus.zeromq.keys import SECRET, TABLE, Entry, KeyPair, clients_of, write_table

        keys, self.run = folder / "keys", folder / "run"
        pairs = {name: KeyPair.new() for name in ("server", *(f"worker-{n}" for n in range(len(shares))))}
        for name, pair in pairs.items():
            pair.save(keys, name)
        write_table(
            keys / TABLE,
            [Entry(f"worker-{n}", pairs[f"worker-{n}"].public, clients_of(share)) for n, share in enumerate(shares)],
        )
        endpoint = f"tcp://{machines['server'].address}:{self.PORT}"
        options = ("--bind", endpoint, "--keys", keys, "--workers", len(shares), "--out", self.run, "-q")
        self.server = machines["server"].seedbus("server", scenario, *options)
        if in_turn:
            wait_for(lambda: '"listening"' in self.log)
        to = ("--connect", endpoint, "--server-key", pairs["server"].public.decode())
        self.workers = [
            machines[f"worker {n}"].seedbus(
                "client", *to, "--key", keys / f"worker-{n}{SECRET}", "--clients", share, "-q"
            )
            for n, share in enumerate(shares)
        ]
        if in_turn:
            wait_for(lambda: sum(each.packets for each in machines.wires.values()) >= _GREETING * len(shares))
        self.greeted = datetime.now(UTC)

    @property
    def lasted_s(self) -> float:
        """Seconds from `greeted` to the end of the last round so far."""
        last = next(json.loads(line) for line in reversed(self.log.splitlines()) if '"event": "round"' in line)
        return (datetime.fromisoformat(last["timestamp"]) - self.greeted).total_seconds()

    @property
    def log(self) -> str:
        """What the run's log says so far."""
        path = self.run / "log.jsonl"
        return path.read_text() if path.exists() else ""

    def finish(self) -> list[str]:
        """Wait for the end of all processes, and return what each printed on stderr, the server's first.

        Raises:
            AssertionError: one ended with an error, or did not end.
        """
        told = []
        for process in (self.server, *self.workers):
            try:
                told.append(process.communicate(timeout=HANGS_S)[1])
            except subprocess.TimeoutExpired:
                raise AssertionError(f"it has not ended after {HANGS_S:g} s; the log: {self.log[-2000:]}") from None
        codes = [process.returncode for process in (self.server, *self.workers)]
        assert not any(codes), f"exit codes {codes}: {told}"
        return told


def _command(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{' '.join(command)}: {done.stderr.strip()}")
