"""A federation whose owners' and server's keys are replaced while it goes on, over tcp, ends as its rehearsal does."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import processes
import pytest
from clusters import ClientsThread
from commands import Command
from gates import Gate
from hidden_folders import free_port
from owners import own_scenario, own_tables
from processes import HANGS_S, wait_for

from seedbus.bus import HostRequest
from seedbus.cli.keys import identity
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement

KEPT_S = 20
FIELDS = own_scenario(stop={"rounds": 40}, evaluation={"by": "clients", "every": 10})


class Federation:
    """A server and three owners, of whom the first waits at a gate. All but that one are processes.

    Attributes:
        gate: where owner 0 waits.
        log: what the server has logged.
    """

    def __init__(self, folder: Path, seedbus: Command) -> None:
        self._folder, self._seedbus = folder, seedbus
        self._bind = f"tcp://127.0.0.1:{free_port()}"
        self._started: list[subprocess.Popen[str]] = []
        self.gate = Gate()
        self.run, self.keys = folder / "run", folder / "server"
        self.tables = own_tables(folder / "owners")
        (folder / "own.yaml").write_text(dump(FIELDS))
        assert seedbus("keys", "new", "server", "--keys", self.keys).code == 0

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()

    def new_key(self, name: str, client: int) -> Path:
        """Make a key of an owner, which the operator authorises; return its file."""
        assert self._seedbus("keys", "new", name, "--keys", self._folder).code == 0
        public = self._folder / f"{name}.public"
        how = ("--name", name, "--clients", client, "--keys", self.keys)
        assert self._seedbus("keys", "authorise", public, *how).code == 0
        return self._folder / f"{name}.secret"

    @property
    def public(self) -> str:
        """The server's public key."""
        return (self.keys / "server.public").read_text().strip()

    def serve(self, *arguments: object) -> subprocess.Popen[str]:
        options = ("--bind", self._bind, "--keys", self.keys, "--patience", HANGS_S, "--join-within", KEPT_S, "-q")
        return self._start("server", *arguments, *options)

    def join(self, number: int, key: Path, server_key: object, patience: float = HANGS_S) -> subprocess.Popen[str]:
        which = ("--clients", f"{number}-{number}", "--own", self.tables[number], "--patience", patience)
        return self._start("client", "--connect", self._bind, "--key", key, "--server-key", server_key, *which)

    def join_gated(self, key: Path, server_file: Path) -> ClientsThread:
        own = with_own(load(FIELDS), str(self.tables[0]), [0], evaluates=False)
        request, shows = HostRequest(((0, 0),), evaluates=False), identity(str(server_file), key)
        return ClientsThread(own, self._bind, request, gate=self.gate, identity=shows, patience_s=HANGS_S)

    def until_round(self, round: int) -> None:
        self.gate.open_to(round)
        wait_for(partial(self.has_logged, "round", round))

    def has_logged(self, event: str, times: int) -> bool:
        log = self.run / "log.jsonl"
        return log.exists() and log.read_text().count(f'"event": "{event}"') >= times

    def was_refused(self, reason: str) -> bool:
        return f'"reason": "{reason}"' in (self.run / "log.jsonl").read_text()

    def _start(self, *arguments: object) -> subprocess.Popen[str]:
        self._started.append(processes.seedbus(*arguments, cwd=self._folder))
        return self._started[-1]


@pytest.fixture
def federation(tmp_path: Path, seedbus: Command) -> Iterator[Federation]:
    made = Federation(tmp_path, seedbus)
    yield made
    made.close()


def left(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Interrupt a process as Ctrl-C does, if it has not ended; return its exit code and what it said."""
    process.send_signal(signal.SIGINT)
    return ended(process)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=HANGS_S)
    return process.returncode, said


@pytest.mark.slow
def test_an_owners_key_and_the_servers_are_rotated_and_no_bit_changes(
    tmp_path: Path, seedbus: Command, federation: Federation
) -> None:
    keys, old = [federation.new_key(f"owner-{number}", number) for number in range(3)], federation.public
    pinned = tmp_path / "pinned.public"
    pinned.write_text(old)
    first = federation.serve("own.yaml", "--out", federation.run)
    gated = federation.join_gated(keys[0], pinned)
    one, two = federation.join(1, keys[1], old), federation.join(2, keys[2], pinned)
    federation.until_round(10)

    new = federation.new_key("owner-1b", 1)  # beside the old one: both are let in
    comes = federation.join(1, new, pinned)
    wait_for(lambda: federation.was_refused("taken"))
    one.kill()  # as a machine that is lost, whose clients are kept for its key for a while
    wait_for(lambda: federation.has_logged("joined", 5))
    assert seedbus("keys", "revoke", "owner-1", "--keys", federation.keys).code == 0
    federation.until_round(20)
    code, said = ended(federation.join(1, keys[1], old))
    assert code == Exit.PEER and "not-authorised" in said, said

    assert left(first)[0] == Exit.INTERRUPTED
    federation.gate.open_to(25)  # what waits there is of no use to the next server
    (federation.keys / "server.secret").unlink()
    last = federation.serve("--resume", federation.run)
    wait_for(lambda: federation.has_logged("opened", 2))
    wait_for(lambda: federation.public != old)
    pinned.write_text(federation.public)  # which the owners' processes take without a restart
    wait_for(lambda: federation.has_logged("joined", 9))
    code, said = ended(federation.join(1, new, old, patience=5))
    assert code == Exit.PEER and "another key than --server-key" in said, said
    federation.gate.open_to(2**32)
    ends = [ended(process) for process in (last, comes, two)]
    assert [code for code, _ in ends] == [0, 0, 0], ends
    gated.join(HANGS_S)
    assert gated.failure is None
    placement: Any = Placement("memory", own=str(tmp_path / "owners/*/*.csv"))
    alone = run(load(FIELDS), tmp_path / "alone", placement=placement, page=False)
    ran = Results.read(federation.run)
    assert ran.digest == alone.digest and ran.summary["metrics"] == alone.summary["metrics"]


@pytest.mark.slow
def test_a_server_that_starts_again_waits_for_no_owner_who_was_removed(
    tmp_path: Path, seedbus: Command, federation: Federation
) -> None:
    crowd = {"clients": 3, "cohort": 3, "quorum": 2, "deadline_s": 20.0, "every_s": 0.05}
    (tmp_path / "own.yaml").write_text(
        dump(FIELDS | {"clock": "wall", "participation": crowd, "stop": {"rounds": 300}})
    )
    keys = [federation.new_key(f"owner-{number}", number) for number in range(3)]
    first = federation.serve("own.yaml", "--out", federation.run)
    owners = [federation.join(number, keys[number], federation.public) for number in range(3)]
    wait_for(lambda: federation.has_logged("round", 3))
    assert seedbus("keys", "revoke", "owner-2", "--keys", federation.keys).code == 0
    assert "not-authorised" in ended(owners[2])[1]
    assert left(first)[0] == Exit.INTERRUPTED
    last = federation.serve("--resume", federation.run)
    assert [ended(each)[0] for each in (last, *owners[:2])] == [0, 0, 0]
    assert Results.read(federation.run).summary["version"] == 300
