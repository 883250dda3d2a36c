"""A federation of three owners whose data stay with them: run, disturbed, captured, searched, and rehearsed.

    make federation        (python benchmarks/federation.py)

Each owner is a user of its own (a number that no account has) on a machine of its own (a network namespace), and its
data lie in a folder that no other user can read. The server is a fourth user, with keys, and with neither data nor a
model: the first owner hosts the evaluator. DeComFL trains on real data that come with scikit-learn: the table of breast
cancers, and the images of digits as PNG files. In the run an owner's process is killed and started again, and so is
the server. The run and its rehearsal, by a user who can read all folders, must end with the same digest.

What passes the server's interface is captured and searched for every sample, label and name of a file, in the encodings
that a leak would have: of the run with keys, and of a short one without, whose bytes can be read. There an owner then
sends one of each on purpose, and the same search must find exactly these.

Linux; needs root, and the right to make namespaces: else it says what is missing and ends with exit code 3.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from federation_capture import Capture, Flow, Lost
from federation_cases import OWNERS, Case, image_case, searched, table_case
from namespaces import Machine, Machines, Refused
from processes import kill

from seedbus.algorithms import directions
from seedbus.bus.zeromq.keys import SECRET, TABLE, Entry, KeyPair, write_table
from seedbus.scenarios.running.limits import offered_scenario
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.yaml_text import dump

FIRST_UID = 61_000  # of the server; the owners' follow it. No account has them on a usual machine
PORT, LEAK_PORT = 5555, 5556
HANGS_S = 240.0
_SIGKILL = 9
_ROOT = Path(__file__).resolve().parent.parent


class Failed(Exception):
    """The federation did not do what it is to show; the sentence says what."""


# -- users


class User(NamedTuple):
    """A user of a number without an account, who has a folder that no other user can read.

    Attributes:
        uid: the number, which is its group's too.
        machine: where its processes are.
        folder: its folder.
    """

    uid: int
    machine: Machine
    folder: Path

    def owns(self) -> None:
        """Give it all that is in its folder."""
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, self.uid, self.uid)
        self.folder.chmod(0o700)

    @property
    def within(self) -> list[str]:
        """The command by which it runs others: they lose every right of root's, and keep the way to this program.

        That way may lead through a folder of root's, which others may not enter. In the process's own view of the file
        system such a folder holds nothing but what is needed of it. Compiled kernels are a copy of its own.
        """
        steps = ["mount -t tmpfs none /mnt"]
        for number, (closed, needed) in enumerate(_behind_closed()):
            stage = f"/mnt/{number}"
            moved = [f"mkdir -p {stage}/{at} && mount --bind '{path}' {stage}/{at}" for at, path in enumerate(needed)]
            opened = [f"mkdir -p '{path}' && mount --move {stage}/{at} '{path}'" for at, path in enumerate(needed)]
            steps += [*moved, f"mount -t tmpfs -o mode=755 none '{closed}'", *opened]
        kernels = Path(str(directions.__file__)).parent / "__pycache__"
        if kernels.is_dir():
            mine = f"mode=700,uid={self.uid},gid={self.uid}"
            steps += [
                f"cp -a '{kernels}' /mnt/kernels && mount -t tmpfs -o {mine} none '{kernels}'",
                f"cp -a /mnt/kernels/. '{kernels}' && chown -R {self.uid}:{self.uid} '{kernels}'",
            ]
        bare = f"setpriv --reuid {self.uid} --regid {self.uid} --clear-groups --inh-caps=-all --bounding-set=-all"
        steps += ["{ umount /mnt 2>/dev/null || true; }", f'exec {bare} --no-new-privs "$@"']
        return ["unshare", "--mount", "sh", "-c", " && ".join(steps), "sh"]

    def starts(self, *arguments: object) -> subprocess.Popen[str]:
        """Start a command of Seedbus as this user, in its folder."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "NUMBA_"))}
        environment |= {"HOME": str(self.folder)}
        started: subprocess.Popen[str] = self.machine.seedbus(
            *arguments, within=self.within, cwd=self.folder, env=environment
        )
        return started

    def runs(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run another command as this user, to its end."""
        whole = [*self.machine.within, *self.within, *command]
        return subprocess.run(whole, capture_output=True, text=True, check=False, cwd="/")


def _behind_closed() -> list[tuple[Path, list[Path]]]:
    """Return the folders on the way to this program that only some may enter, each with what is needed behind it."""
    needed = {Path(each).resolve() for each in (sys.base_prefix, sys.prefix, str(_ROOT), *sys.path) if each}
    behind = defaultdict[Path, list[Path]](list)
    for path in sorted(needed):
        closed = next((each for each in reversed(path.parents) if not each.stat().st_mode & 0o001), None)
        if closed is not None and not any(path.is_relative_to(other) for other in behind[closed]):
            behind[closed].append(path)
    return [*behind.items()]


# -- the federation


class Federation:
    """The server's user and the owners', their machines, and the data of a case, in a folder.

    Args:
        folder: a new one is made in it.
        machines: `server`, and one of each owner.
        case: what is run.
        rounds: for how many rounds.
        has_keys: whether the server lets in authorised keys alone; else nothing is encrypted.
    """

    def __init__(self, folder: Path, machines: Machines, case: Case, rounds: int, *, has_keys: bool) -> None:
        folder.mkdir()
        folder.chmod(0o711)
        (folder / "owners").mkdir()
        (folder / "owners").chmod(0o711)
        self.folder, self.machines, self.case, self.has_keys = folder, machines, case, has_keys
        self.server = User(FIRST_UID, machines["server"], folder / "server")
        self.owners = [
            User(FIRST_UID + number, machines[name], folder / "owners" / f"{number}-{name}")
            for number, name in enumerate(OWNERS, 1)
        ]
        for user in (self.server, *self.owners):
            user.folder.mkdir()
        self.shares = case.divide([owner.folder / case.own for owner in self.owners])
        self.file = folder / f"{case.name}.yaml"
        self.scenario = load(case.scenario | {"stop": {"rounds": rounds}})
        self.file.write_text(dump(self.scenario.resolved()))
        self._public = b""
        if has_keys:
            self._make_keys()
        for user in (self.server, *self.owners):
            user.owns()

    def _make_keys(self) -> None:
        pairs = {name: KeyPair.new() for name in ("server", *OWNERS)}
        self._public = pairs["server"].public
        for user, (name, pair) in zip((self.server, *self.owners), pairs.items(), strict=True):
            pair.save(user.folder / "keys", name)
        rights = [
            Entry(name, pairs[name].public, ((number, number),), evaluator=not number)
            for number, name in enumerate(OWNERS)
        ]
        write_table(self.server.folder / "keys" / TABLE, rights)

    @property
    def endpoint(self) -> str:
        return f"tcp://{self.server.machine.address}:{PORT}"

    @property
    def run(self) -> Path:
        return self.server.folder / "run"

    def start_server(self, *, resume: bool = False) -> subprocess.Popen[str]:
        keys = ("--keys", "keys", "--evaluator", "keys") if self.has_keys else ("--insecure",)
        what = ("--resume", "run") if resume else (self.file, "--out", "run")
        return self.server.starts("server", *what, "--bind", self.endpoint, *keys, "--patience", HANGS_S, "-q")

    def start_owner(self, number: int) -> subprocess.Popen[str]:
        keys: tuple[object, ...] = ()
        if self.has_keys:
            keys = ("--server-key", self._public.decode(), "--key", f"keys/{OWNERS[number]}{SECRET}")
            keys += ("--evaluator",) if not number else ()
        mine = ("--clients", f"{number}-{number}", "--own", self.case.own, "--out", "memory")
        return self.owners[number].starts("client", "--connect", self.endpoint, *keys, *mine, "--patience", HANGS_S)

    @property
    def rounds(self) -> int:
        """How many rounds the run's log has so far, those that were repeated after a resumption included."""
        log = self.run / "log.jsonl"
        return log.read_text().count('"event": "round"') if log.exists() else 0

    def refused_looks(self) -> int:
        """Return how many looks into another's folder were refused. Raises `Failed` if one was not."""
        users = (self.server, *self.owners)
        for user, owner in itertools.product(users, self.owners):
            look = user.runs("ls", str(owner.folder))
            if (look.returncode == 0) != (user is owner):
                said = look.stderr.strip() or "it was listed"
                raise Failed(f"user {user.uid} and {owner.folder}: {said}; expected only its owner to read it")
        return (len(users) - 1) * len(self.owners)

    def rehearsed(self) -> str:
        """Return the digest of the same scenario in one process that reads all owners' folders."""
        out = self.folder / "rehearsal"
        own = str(self.folder / "owners" / "*" / self.case.own)
        command = [sys.executable, "-m", "seedbus", "run", str(self.file), "--own", own, "--out", str(out), "-q"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"the rehearsal ended with exit code {done.returncode}: {done.stderr.strip()}")
        return digest_of(out)


def digest_of(run: Path) -> str:
    """Return the digest of a finished run's model."""
    digest: str = json.loads((run / "results.json").read_text())["digest"]
    return digest


def finish(processes: dict[str, subprocess.Popen[str]]) -> None:
    """Wait for the end of processes. Raises `Failed` if one ends with an error, or does not end."""
    for name, process in processes.items():
        try:
            _, said = process.communicate(timeout=HANGS_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"{name} has not ended after {HANGS_S:g} s") from None
        if process.returncode:
            raise Failed(f"{name} ended with exit code {process.returncode}: {said.strip()[-2000:]}")


def wait_for_rounds(federation: Federation, rounds: int, processes: dict[str, subprocess.Popen[str]]) -> None:
    """Wait until so many rounds are over. Raises `Failed` if a process ends before, or they do not come."""
    until = time.monotonic() + HANGS_S
    while federation.rounds < rounds:
        for name, process in processes.items():
            if process.poll():
                raise Failed(f"{name} ended with exit code {process.returncode}: {process.communicate()[1].strip()}")
        if time.monotonic() > until:
            raise Failed(f"{federation.rounds} rounds after {HANGS_S:g} s; expected {rounds}")
        time.sleep(0.02)


def disturbed(federation: Federation, rounds: int) -> None:
    """Run it to its end; after a third of its rounds an owner's process is killed, and after two thirds the server."""
    processes = {"the server": federation.start_server()}
    processes |= {name: federation.start_owner(number) for number, name in enumerate(OWNERS)}
    wait_for_rounds(federation, rounds // 3, processes)
    _kill(processes[OWNERS[1]])
    say(f"{OWNERS[1]}'s process is killed after round {federation.rounds}, and started again")
    processes[OWNERS[1]] = federation.start_owner(1)
    wait_for_rounds(federation, 2 * rounds // 3, processes)
    _kill(processes["the server"])
    say(f"the server is killed after round {federation.rounds}, and resumed")
    processes["the server"] = federation.start_server(resume=True)
    finish(processes)


def _kill(process: subprocess.Popen[str]) -> None:
    kill(process.pid, _SIGKILL)
    process.communicate()


def search(federation: Federation, flows: dict[Flow, bytes], *, has_leak: bool) -> None:
    """Search what has passed for all owners' secrets, and tell what was found.

    The scenario, which all processes are sent, states the names of classes: they are looked for everywhere else.

    Raises:
        Failed: a secret is where it must not be, or a planted one was not found.
    """
    scenario = offered_scenario(federation.scenario)
    secrets = {secret: what for share in federation.shares for secret, what in share.secrets.items()}
    leaked: dict[bytes, str] = {}
    copies = total = 0
    for (_, near, _, far), stream in flows.items():
        total += len(stream)
        copies += stream.count(scenario)
        found = searched(stream.replace(scenario, b""), secrets)
        if found and LEAK_PORT not in (near, far):
            secret, what = next(iter(found.items()))
            raise Failed(f"{len(found)} secrets have left their owners, such as {what}: {secret!r}")
        leaked |= found
    if federation.has_keys == bool(copies):
        expected = "not to be there, encrypted" if federation.has_keys else "to be there, in the clear"
        raise Failed(f"{copies} copies of the scenario are in the capture; expected it {expected}")
    say(f"{total:,} bytes in {len(flows)} streams searched for {len(secrets):,} secrets: none has left its owner")
    planted = _planted(federation) if has_leak else {}
    if leaked.keys() != planted.keys():
        raise Failed(f"{len(leaked)} of {len(planted)} planted secrets were found; expected all of them")
    if planted:
        say(f"and {len(planted)} that an owner sent on purpose are found: {', '.join(planted.values())}")


def _planted(federation: Federation) -> dict[bytes, str]:
    """Return one secret of each kind, of the second owner."""
    kinds = {what: secret for secret, what in federation.shares[1].secrets.items()}
    return {secret: what for what, secret in kinds.items()}


def plant(federation: Federation) -> None:
    """Have an owner send secrets to the server's machine, by a connection of its own. Raises `Failed`."""
    listens = f"import socket; s = socket.create_server(('', {LEAK_PORT})); print(flush=True); c = s.accept()[0]\n"
    listens += "while c.recv(65536): pass"
    sends = "import socket, sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
    sends += "c.sendall(bytes.fromhex(sys.argv[3])); c.shutdown(1); c.recv(1)"
    address = federation.server.machine.address
    leak = b"\xff".join(_planted(federation)).hex()
    with subprocess.Popen(
        [*federation.server.machine.within, sys.executable, "-c", listens], stdout=subprocess.PIPE
    ) as listener:
        assert listener.stdout is not None
        listener.stdout.readline()
        done = federation.owners[1].runs(sys.executable, "-c", sends, address, str(LEAK_PORT), leak)
        if done.returncode:
            kill(listener.pid, _SIGKILL)
            raise Failed(f"the planted leak was not sent: {done.stderr.strip()}")


def traffic(federation: Federation, flows: dict[Flow, bytes], rounds: int) -> None:
    """Print what each owner sent and got, in bytes of TCP, and what a model of float32 each way and round would be."""
    model = 4 * int(federation.scenario.dimension) * rounds
    print(
        f"  | owner | data | bytes up | bytes down | a model of {federation.scenario.dimension:,} numbers, each way |"
    )
    print("  |---|---|---:|---:|---:|")
    for name, owner, share in zip(OWNERS, federation.owners, federation.shares, strict=True):
        address = owner.machine.address
        up, down = (
            sum(len(stream) for flow, stream in flows.items() if flow[at] == address and LEAK_PORT not in flow)
            for at in (0, 2)
        )
        less = f"{model / up:.0f} and {model / down:.0f} times"
        print(f"  | {name} | {share.what} | {up:,} | {down:,} | {model:,}: {less} |", flush=True)


def say(text: str) -> None:
    print(f"  {time.monotonic() - _BEGAN_S:4.0f} s  {text}", flush=True)


_BEGAN_S = time.monotonic()


def captured(federation: Federation, act: Callable[[], None]) -> dict[Flow, bytes]:
    """Return what passes the server's interface while something is done."""
    with closing(Capture(federation.server.machine)) as capture:
        act()
        time.sleep(0.5)
        capture.close()
        return capture.flows()


def shown(case: Case, folder: Path, rounds: int) -> bool:
    """Run a case with keys and without; returns whether the run and its rehearsal ended with the same digest."""
    with Machines("server", *OWNERS) as machines:
        federation = Federation(folder / case.name, machines, case, rounds, has_keys=True)
        say(f"{case.name}: {federation.refused_looks()} looks into another's folder are refused")
        flows = captured(federation, lambda: disturbed(federation, rounds))
        say(f"{rounds} rounds are over")
        search(federation, flows, has_leak=False)
        traffic(federation, flows, rounds)
    with Machines("server", *OWNERS) as machines:
        few = max(3, rounds // 10)
        clear = Federation(folder / f"{case.name}-clear", machines, case, few, has_keys=False)
        say(f"{few} rounds without encryption")

        def act() -> None:
            processes = {"the server": clear.start_server()}
            finish(processes | {name: clear.start_owner(number) for number, name in enumerate(OWNERS)})
            plant(clear)

        search(clear, captured(clear, act), has_leak=True)
    say("the rehearsal, by a user who can read all folders")
    ran, rehearsed = digest_of(federation.run), federation.rehearsed()
    metrics = json.loads((federation.run / "results.json").read_text())["metrics"]
    say(f"{case.name}: accuracy {metrics['accuracy']:.1%} on what the owners hold out")
    say(f"{case.name}: digest {ran}, of its rehearsal {rehearsed}: {'equal' if ran == rehearsed else 'NOT EQUAL'}")
    return ran == rehearsed


def missing() -> Iterator[str]:
    """Yield what this machine lacks."""
    if not sys.platform.startswith("linux"):
        yield "Linux"
        return
    if os.geteuid():
        yield "root, to make users' folders and network namespaces (sudo)"
    yield from (f"the command {name}" for name in ("ip", "unshare", "nsenter", "setpriv") if shutil.which(name) is None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("breast-cancer", "digits"), help="one of the two; default: both")
    parser.add_argument("--rounds", type=int, help="of each run, 9 at least; default: 150 and 40")
    options = parser.parse_args()
    if lacks := list(missing()):
        print(f"the federation needs {', '.join(lacks)}", file=sys.stderr)
        sys.exit(3)
    cases = [case for case in (table_case(), image_case()) if options.only in (None, case.name)]
    try:
        with tempfile.TemporaryDirectory(prefix="federation-") as name:
            folder = Path(name)
            folder.chmod(0o711)
            equal = [shown(case, folder, max(9, options.rounds or case.rounds)) for case in cases]
    except Refused as refused:
        print(f"the federation needs network namespaces, and this kernel refuses: {refused}", file=sys.stderr)
        sys.exit(3)
    except (Failed, Lost) as failed:
        print(f"federation: {failed}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("federation: stopped; its processes, users' folders and namespaces are gone", file=sys.stderr)
        sys.exit(130)
    print("the digests are equal" if all(equal) else "the digests are NOT equal")
    sys.exit(0 if all(equal) else 1)


if __name__ == "__main__":
    main()
