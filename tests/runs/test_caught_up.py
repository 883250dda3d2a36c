"""Who joins late, or comes back, is told in one line where it is, what it had missed, and what that took."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clusters import ClientsThread, ServerThread
from gates import Gate
from processes import HANGS_S, kill, seedbus, wait_for
from tcp_proxy import CountingProxy
from worlds import DECOMFL, holds, scenario

from seedbus.agents.catch_up.caught_up import TellsCaughtUp
from seedbus.bus import Envelope, HostRequest, Kind, decode, encode
from seedbus.scenarios.reporting.results import Results

pytestmark = pytest.mark.slow
STAYS = HostRequest(((0, 6),))  # with the evaluator
LINE = re.compile(
    r"client 7 is at round (?P<round>\d+): it had missed (?P<missed>\d+) commits?, and caught up by (?P<by>.*), in "
    r"(?P<size>[\d,]+) bytes"
)
FEDKSEED: dict[str, Any] = {"name": "fedkseed", "pool": 64, "perturbations": 3, "learning_rate": 0.01}
COMMITS, SUM = r"(\d+) commits from the server", r"the sum of (\d+) commits from the server"
SNAPSHOT = r"a snapshot that the server got from another process(?: and (\d+) commits? from the server)?"


class Owner:
    """A process of `seedbus client` with client 7, or others, whose standard error goes to a file."""

    def __init__(self, folder: Path, name: str, endpoint: str, clients: str = "7-7") -> None:
        self.path = folder / f"{name}.txt"
        with self.path.open("w") as said:
            self.process: subprocess.Popen[str] = seedbus(
                "client", "--connect", endpoint, "--clients", clients, stderr=said
            )

    @property
    def lines(self) -> list[re.Match[str]]:
        return [found for line in self.path.read_text().splitlines() if (found := LINE.fullmatch(line))]


def bytes_of(results: Results, told: re.Match[str], *, kinds: tuple[str, ...]) -> int:
    """Return the bytes of the messages of these kinds to client 7 until a round, and of its process's last WELCOME."""
    rows = results.messages
    of_client = rows[(rows["recipient"] == 7) & rows["kind"].isin(kinds) & (rows["round"] <= int(told["round"]))]
    plans = of_client[of_client["kind"] == "PLAN"].tail(1)
    snapshots = of_client[of_client["kind"] == "SNAPSHOT"]
    welcome = rows[rows["kind"] == "WELCOME"].tail(1)
    return sum(int((each["header_bytes"] + each["payload_bytes"]).sum()) for each in (plans, snapshots, welcome))


@pytest.mark.parametrize(
    ("algorithm", "lag", "way"),
    [
        (DECOMFL, None, COMMITS),
        (FEDKSEED, None, SUM),
        (DECOMFL, {"snapshot_after_commits": 3}, SNAPSHOT),
    ],
    ids=["commits", "sum", "snapshot"],
)
def test_a_process_tells_its_user_how_it_has_caught_up(
    tmp_path: Path, algorithm: dict[str, Any], lag: dict[str, Any] | None, way: str
) -> None:
    policy = {"clients": 8, "cohort": 8, "quorum": 2, "deadline_s": 2.0}
    what = scenario(
        algorithm=algorithm, lag=lag, clock="wall", participation=policy, network={}, stop={"rounds": 20}, verify=False
    )
    gate = Gate()
    with ServerThread(what, tmp_path / "run") as server:
        stays = ClientsThread(what, server.watcher.endpoint, STAYS, gate=gate)
        first = Owner(tmp_path, "first", server.watcher.endpoint)
        gate.open_to(6)
        wait_for(lambda: server.watcher.rounds >= 6)
        assert not first.lines, "it has been there from the beginning"
        kill(first.process.pid, 9)
        first.process.communicate()
        gate.open_to(12)
        wait_for(lambda: server.watcher.rounds >= 12)
        second = Owner(tmp_path, "second", server.watcher.endpoint)
        wait_for(lambda: server.watcher.hosts("client 7"))
        gate.open_to(16)
        wait_for(lambda: bool(second.lines))
        gate.open_to(2**32)
        results = server.results()
        stays.join(HANGS_S)
        second.process.communicate()
        assert stays.failure is None and holds(results)
    (told,) = second.lines
    by = re.fullmatch(way, told["by"])
    assert by is not None, told["by"]
    has_commit = results.history.has_commit[: int(told["round"])]
    assert int(told["missed"]) == has_commit.sum() > 6, "all commits, for a process that is started anew begins at none"
    assert int(by[1] or 0) == int(told["missed"]) if way != SNAPSHOT else int(by[1] or 0) <= 3
    assert int(told["size"].replace(",", "")) == bytes_of(results, told, kinds=("PLAN", "SNAPSHOT"))


def test_a_process_whose_connection_broke_tells_that_it_is_back(tmp_path: Path) -> None:
    policy = {"clients": 8, "cohort": 8, "quorum": 8}
    what = scenario(clock="wall", participation=policy, network={}, stop={"rounds": 12}, verify=False)
    gate = Gate()
    with ServerThread(what, tmp_path / "run") as server, CountingProxy(server.port) as proxy:
        stays = ClientsThread(what, server.watcher.endpoint, STAYS, gate=gate)
        owner = Owner(tmp_path, "owner", proxy.endpoint)
        gate.open_to(4)
        wait_for(lambda: server.watcher.rounds >= 4)
        joined = server.watcher.joined
        proxy.cut()
        wait_for(lambda: server.watcher.joined > joined)
        gate.open_to(2**32)
        server.results()
        stays.join(HANGS_S)
        owner.process.communicate()
        assert stays.failure is None and owner.process.returncode == 0
    back = [line for line in owner.path.read_text().splitlines() if line.startswith("client 7")]
    assert len(back) == 1, owner.path.read_text()


def test_a_process_tells_of_all_its_clients_in_one_line(tmp_path: Path) -> None:
    policy = {"clients": 8, "cohort": 8, "quorum": 2, "deadline_s": 2.0}
    what = scenario(clock="wall", participation=policy, network={}, stop={"rounds": 14}, verify=False)
    gate = Gate()
    with ServerThread(what, tmp_path / "run") as server:
        stays = ClientsThread(what, server.watcher.endpoint, HostRequest(((0, 5),)), gate=gate)
        first = Owner(tmp_path, "first", server.watcher.endpoint, "6-7")
        gate.open_to(4)
        wait_for(lambda: server.watcher.rounds >= 4)
        kill(first.process.pid, 9)
        first.process.communicate()
        second = Owner(tmp_path, "second", server.watcher.endpoint, "6-7")
        wait_for(lambda: server.watcher.hosts("clients 6…7"))
        gate.open_to(2**32)
        server.results()
        stays.join(HANGS_S)
        second.process.communicate()
    lines = [line for line in second.path.read_text().splitlines() if "had missed" in line]
    told = re.fullmatch(
        r"clients 6…7 are at round \d+: they had missed (\d+) commits each, and caught up by (\d+) commits from the "
        r"server each, in [\d,]+ bytes",
        "\n".join(lines),
    )
    assert told is not None and told[1] == told[2] and int(told[1]) >= 4, second.path.read_text()


class Fakes(SimpleNamespace):
    """Followers of three clients, which are at the version of the last message that each was sent."""

    longest = 0

    def __init__(self) -> None:
        self.versions = {1: 0, 2: 3, 3: 0}
        replicas = SimpleNamespace(version=self.versions.__getitem__)
        algorithm = SimpleNamespace(facts=SimpleNamespace(is_dense=False, most_catch_up_bytes=None))
        self.host = SimpleNamespace(clients=[1, 2, 3], replicas=replicas, algorithm=algorithm)

    def join(self, host: int, nonce: bytes = b"") -> list[Any]:
        return []

    def welcome(self, frame: Any) -> None: ...

    def handle_all(self, frames: Sequence[Any]) -> Iterator[list[Any]]:
        for frame in frames:
            self.versions[decode(frame).client] = decode(frame).base
            yield []


def test_of_clients_that_a_round_has_not_asked_the_line_says_so() -> None:
    told: list[str] = []
    process = TellsCaughtUp(Fakes(), lambda event, what: told.append(what))

    def sent(kind: Kind, client: int, round: int, version: int) -> bytes:
        return bytes(encode(Envelope(kind, client, round, version))[0])

    process.join(0, b"")
    welcome = sent(Kind.WELCOME, -4, 0, 5)
    process.welcome(welcome)
    asked = [sent(Kind.PLAN, 1, 5, 5), sent(Kind.PLAN, 2, 5, 5)]
    process.handle(asked[0])
    process.handle(asked[1])
    assert told == []
    process.handle(sent(Kind.PLAN, 2, 6, 6))
    size = sum(map(len, [welcome, *asked]))
    how = "caught up by 5 commits from the server or 2 commits from the server"
    what = f"they had missed 2 to 5 commits each, and {how}, in {size} bytes; 1 other of this process was not asked yet"
    assert told == [f"clients 1…2 are at round 5: {what}"]
    process.handle(sent(Kind.PLAN, 3, 7, 7))
    assert len(told) == 1
