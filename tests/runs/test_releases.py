"""A run outlives an upgrade within a minor version: each release's kept runs are read, replayed and resumed."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from clusters import ClientsThread, ServerThread
from commands import Command
from fake_server import FakeServer, offering
from release_runs import DATA, ROUNDS, release_scenarios, resumed, unpack
from worlds import holds, outcome

from seedbus.agents.journal.journal import Journal
from seedbus.bus import HostRequest
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.running.replay import replay
from seedbus.versions import minor_of, version

RELEASES = {path.name.removeprefix("runs-").removesuffix(".tar.xz"): path for path in sorted(DATA.glob("runs-*"))}
READ = [release for release in RELEASES if minor_of(release) == minor_of(version("seedbus"))]
CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
NAMES = pytest.mark.parametrize("name", release_scenarios())


def of_version(folder: Path, other: str) -> None:
    with closing(Journal.open(folder)) as journal:
        journal.note({"seedbus": other})


def test_a_run_of_a_release_of_this_minor_version_is_kept() -> None:
    dated = re.findall(r"^## ([0-9.]+) ", CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE)
    expected = {each for each in dated if minor_of(each) == minor_of(version("seedbus"))}
    assert expected <= {*READ}, "tests/support/release_runs.py keeps those of a release"


@NAMES
@pytest.mark.parametrize("release", READ)
def test_a_run_that_a_release_began_is_replayed_and_ends_as_if_begun_today(
    tmp_path: Path, release: str, name: str
) -> None:
    unpack(RELEASES[release], tmp_path)
    before = replay(tmp_path / name).digest
    ended = resumed(name, tmp_path / name, tmp_path / "tables")
    assert ended.summary["rounds"] == 20 and ended.summary["was_resumed"] and holds(ended)
    whole = resumed(name, tmp_path / "whole", tmp_path / "tables")
    if name != "dense":  # of which the model of that round is kept no more
        assert before == replay(tmp_path / name, ROUNDS).digest
    if name != "owners":  # whose losses are torch's, with other bits on another processor
        assert replay(tmp_path / "whole").digest == ended.digest
        assert outcome(ended) == outcome(whole)


@pytest.mark.slow
@pytest.mark.parametrize("release", READ)
def test_a_server_and_clients_of_a_later_release_go_on_with_it_over_sockets(tmp_path: Path, release: str) -> None:
    unpack(RELEASES[release], tmp_path)
    what = release_scenarios()["hiso"]
    of_version(tmp_path / "hiso", f"{minor_of(version('seedbus'))}.99")
    with ServerThread(what, tmp_path / "hiso", resume=True) as server:
        halves = (HostRequest(((0, 3),)), HostRequest(((4, 7),), evaluates=False))
        clients = [ClientsThread(what, server.watcher.endpoint, half) for half in halves]
        ended = server.results()
        for client in clients:
            client.join()
            assert client.failure is None
    assert outcome(ended) == outcome(resumed("hiso", tmp_path / "whole", tmp_path / "tables"))


@pytest.mark.slow
def test_a_run_of_another_minor_version_is_refused_in_one_sentence(tmp_path: Path, seedbus: Command) -> None:
    unpack(RELEASES[READ[-1]], tmp_path)
    commands = ("run", "-q", "--resume"), ("export",), ("verify",)
    for other in ("0.1.0", "1.2.0", "0.20.0", "0"):
        of_version(tmp_path / "hiso", other)
        for command in commands:
            said = seedbus(*command, tmp_path / "hiso")
            assert said.code == Exit.FOLDER and said.err.count("\n") == 1, said.err
            begun = f"seedbus: {tmp_path / 'hiso'}: it was begun with seedbus {other}, and this is seedbus 0.2."
            assert said.err.startswith(begun), said.err
    of_version(tmp_path / "hiso", f"{minor_of(version('seedbus'))}.99")
    for command in commands:
        said = seedbus(*command, tmp_path / "hiso")
        assert said.code == Exit.OK, said.err


@pytest.mark.parametrize("theirs", ["0.1", "0.20", "1.2", "0.2\x1b[2J", None])
def test_a_server_of_another_minor_version_is_left_in_one_sentence(seedbus: Command, theirs: str | None) -> None:
    with FakeServer(offering({"seedbus": theirs})) as server:
        said = seedbus("client", "--connect", server.endpoint, "--patience", 5)
    assert said.code == Exit.USAGE and said.err.count("\n") == 1 and said.err.strip().isprintable(), said.err
    assert f"the scenario of {server.endpoint}: its server is Seedbus of " in said.err and "; expected 0.2" in said.err
    assert server.farewells == [b"scenario"]
