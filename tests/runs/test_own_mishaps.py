"""What happens to owners and their server: each is told in a sentence to whom it concerns, and the others go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from owner_processes import Federation, federation
from owners import own_scenario, own_table
from processes import HANGS_S, is_alive, kill, wait_for
from tcp_proxy import CountingProxy

from seedbus.scenarios.consent.owner_limits import TODAY
from seedbus.scenarios.errors import Exit

pytestmark = pytest.mark.slow
ENDLESS: dict[str, Any] = {
    "clock": "wall",
    "participation": {"clients": 3, "cohort": 3, "quorum": 2, "deadline_s": 2, "every_s": 0.1},
    "stop": {"rounds": 100_000},
}


def changed(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1].replace("male", "mole"), *lines[2:]]) + "\n")


def grown(path: Path) -> None:
    with path.open("a") as file:
        file.write("somebody,51,male,yes\n")


@pytest.mark.parametrize("how", [changed, grown, Path.unlink])
def test_an_owner_is_told_once_of_data_that_change_and_the_run_goes_on_with_those_that_were_read(
    how: Callable[[Path], None], tmp_path: Path
) -> None:
    with federation(tmp_path, **ENDLESS) as here:
        server, owners = here.server(), [here.owner(number) for number in range(3)]
        here.goes_on()
        shutil.copytree(tmp_path / "owners", tmp_path / "before")
        how(here.places[1])
        wait_for(lambda: "data changed" in here.said("owner1"))
        here.goes_on()
        grown(here.places[1])
        if how is changed:
            here.goes_on(rounds=110)  # eleven seconds, after which a process looks again
        server.send_signal(signal.SIGINT)
        assert here.ends(server) == [Exit.INTERRUPTED]
        assert all(is_alive(owner.pid) for owner in owners)
        told = [line for line in here.said("owner1").splitlines() if "data changed" in line]
        effect = "effect none: the run goes on with what was read at first"
        assert told == [f"data changed: file {here.places[1]}, {effect}"]
        assert "data changed" not in here.said("owner0") + here.said("owner2") + here.said("server-run")
        command = ("run", "run.yaml", "--as", "run", "--out", "again", "--own")
        again = here.start("again", *command, "before/*/*.csv")
        assert here.ends(again) == [0], here.said("again")


def test_who_brings_a_number_that_another_process_has_is_refused_by_it(tmp_path: Path) -> None:
    with federation(tmp_path, **ENDLESS) as here:
        server, _, _ = here.server(), here.owner(0), here.owner(1)
        wait_for(lambda: "hosting" in here.said("owner1"))
        second = here.owner(1, "--patience", 8, name="second")
        first = here.owner(2)
        assert here.ends(second) == [Exit.PEER], here.said("second")
        assert "(taken): client 1 is hosted by another process" in here.said("second")
        here.goes_on()
        assert is_alive(first.pid) and is_alive(server.pid)


def test_an_owner_of_one_sample_trains_on_it_and_holds_none_out(tmp_path: Path) -> None:
    with federation(tmp_path) as here:
        own_table(here.places[1], 1, 5)
        server, *owners = here.server(), *(here.owner(number) for number in range(3))
        assert here.ends(server, *owners) == [0] * 4, here.said("server-run")
        assert here.digest() == here.rehearsed()
        line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
        assert (line["answered"], line["samples"]) == (3, round(0.2 * 31) + round(0.2 * 17))


def left_by_their_server(here: Federation) -> list[subprocess.Popen[str]]:
    """Return the processes of three owners whose server was killed while the run went on."""
    server, owners = here.server(), [here.owner(number) for number in range(3)]
    here.goes_on()
    kill(server.pid, signal.SIGKILL)
    here.ends(server)
    return owners


def test_a_server_that_comes_back_with_other_terms_is_refused_by_their_field(tmp_path: Path) -> None:
    with federation(tmp_path, **ENDLESS) as here:
        owners = left_by_their_server(here)
        to = ("--bind", f"tcp://127.0.0.1:{here.port}", "--patience", HANGS_S)
        longer = here.start("longer", "server", "--resume", "run", "--set", "stop.rounds=200000", *to)
        assert here.ends(*owners) == [Exit.LIMITS] * 3, here.said("owner0")
        sentence = "this process has joined with: stop.rounds is 200000, accepted is 100000"
        assert all(sentence in here.said(f"owner{number}") for number in range(3)), here.said("owner0")
        assert is_alive(longer.pid)


def test_a_server_of_another_run_has_nobody_of_the_first(tmp_path: Path) -> None:
    with federation(tmp_path, **ENDLESS) as here:
        owners = left_by_their_server(here)
        other = here.server(name="other", task=own_scenario()["task"] | {"hidden": [5]})
        assert here.ends(*owners) == [Exit.PEER] * 3, here.said("owner0")
        assert "(another-run): this server runs another run than the one" in here.said("owner0")
        assert is_alive(other.pid) and here.rounds("other") == 0


def test_a_process_that_is_killed_takes_up_the_bytes_of_its_day(tmp_path: Path) -> None:
    with federation(tmp_path, **ENDLESS) as here, CountingProxy(here.port) as proxy:
        server, _, _ = here.server(), here.owner(1), here.owner(2)
        limits = ("--bytes-a-day", "100kB", "--out", "mine")
        first = here.owner(0, *limits, at=proxy.endpoint, name="first")
        today = tmp_path / "mine" / TODAY
        wait_for(lambda: today.exists() and json.loads(today.read_text())["bytes"] > 30_000)
        kill(first.pid, signal.SIGKILL)
        here.ends(first)
        before, kept = proxy.up + proxy.down, json.loads(today.read_text())["bytes"]
        assert 0.5 * before < kept <= 1.1 * before, "what passed the wire, but for the last seconds"
        here.owner(0, *limits, at=proxy.endpoint, name="second")
        wait_for(lambda: "away: because --bytes-a-day" in here.said("second"))
        assert proxy.up + proxy.down - before < 100_000 - kept + 20_000
        here.goes_on()
        lines = (tmp_path / "mine" / "metrics.jsonl").read_text().splitlines()
        assert len(lines) == len(set(lines)) and is_alive(server.pid)


def test_clocks_that_are_off_by_a_day_change_nothing(tmp_path: Path) -> None:
    with federation(tmp_path) as here:
        server = here.server(is_locked=True)
        ahead = [
            "import time",
            "now, local = time.time, time.localtime",
            "time.time = lambda: now() + 86_400",
            "time.localtime = lambda seconds=None: local(time.time() if seconds is None else seconds)",
            f"open({str(tmp_path / 'ahead')!r}, 'w').close()",
        ]
        (tmp_path / "sitecustomize.py").write_text("\n".join(ahead))
        off: dict[str, Any] = {"env": os.environ | {"PYTHONPATH": str(tmp_path)}}
        owners = [here.owner(n, is_locked=True, **(off if n == 1 else {})) for n in range(3)]
        assert here.ends(server, *owners) == [0] * 4, here.said("owner1")
        assert (tmp_path / "ahead").exists() and here.digest() == here.rehearsed()


def test_a_proxy_that_cuts_connections_delays_a_run_and_changes_nothing_of_it(tmp_path: Path) -> None:
    with federation(tmp_path, stop={"rounds": 200}) as here, CountingProxy(here.port) as proxy:
        server = here.server(is_locked=True)
        wait_for(lambda: "listening" in here.said("server-run"))
        owners = [here.owner(number, at=proxy.endpoint, is_locked=True) for number in range(3)]
        for at in (1, 20):
            wait_for(lambda: here.rounds() >= at or server.poll() is not None)  # noqa: B023
            proxy.cut()
        assert here.ends(server, *owners) == [0] * 4, here.said("owner1")
        assert len(proxy.connections) >= 6, "three at first, and three anew"
        assert here.digest() == here.rehearsed()


def test_heartbeats_do_not_cut_a_link_of_10_kbit_s(tmp_path: Path) -> None:
    with federation(tmp_path) as here, CountingProxy(here.port, rate=10_000 / 8) as proxy:
        server = here.server(is_locked=True)
        wait_for(lambda: "listening" in here.said("server-run"))
        owners = [here.owner(number, at=proxy.endpoint, is_locked=True) for number in range(3)]
        assert here.ends(server, *owners) == [0] * 4, here.said("owner1")
        assert len(proxy.connections) == 3, "none is lost"
        assert here.digest() == here.rehearsed()
