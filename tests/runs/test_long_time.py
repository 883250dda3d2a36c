"""Federations of weeks: real time that goes beyond that of a simulation, and clocks that somebody sets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import processes
import pytest
from commands import Command
from hidden_folders import free_port
from owners import own_scenario, own_tables
from processes import HANGS_S, logged, wait_for
from worlds import DECOMFL, holds, scenario

from seedbus.bus import WallClock
from seedbus.bus.event_queue import LAST_NS
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump

DAY_S = 86_400
CLOCK = """
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long step(void) {
    long seconds = 0;
    FILE *file = fopen(getenv("STEP_FILE"), "r");
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    int failed = (int) syscall(SYS_clock_gettime, which, now);
    if (!failed && which == CLOCK_REALTIME) now->tv_sec += step();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
"""
"""What a process reads as the time of day is off by the seconds in a file, which a test changes while it runs."""


@pytest.mark.slow
@pytest.mark.parametrize("network", [{}, {"up_mbps": 0.1, "down_mbps": 0.1, "shared_down_mbps": 1}], ids=["", "links"])
def test_a_run_in_real_time_passes_the_last_instant_of_simulated_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: dict[str, Any]
) -> None:
    began = WallClock.__init__

    def old(self: WallClock) -> None:
        began(self)
        self.now_ns = LAST_NS - 300_000_000

    monkeypatch.setattr(WallClock, "__init__", old)
    participation = {"clients": 8, "cohort": 3, "deadline_s": 0.1, "every_s": 0.1}
    slow = {"fault": "delay", "kind": "report", "clients": [0], "by": {"distribution": "constant", "value": 10}}
    what = scenario(
        clock="wall", algorithm=DECOMFL, network=network, participation=participation, faults=[slow], verify=False
    )
    results = run(what, tmp_path / "run")
    assert holds(results) and results.summary["rounds"] == 20 and results.summary["version"] > 15
    assert results.summary["simulated_s"] > LAST_NS / 1e9 + 1
    assert set(results.summary["refusals"]) <= {"late"}
    if network:  # a link is as slow as before
        plans = results.messages.query("kind == 'PLAN' and arrived_ns >= 0")
        took_s = (plans["arrived_ns"] - plans["sent_ns"]) / 1e9
        assert (took_s >= 8 * (plans["header_bytes"] + plans["payload_bytes"]) / 0.1e6).all()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler of C, to change what a process reads")
def test_clocks_that_are_set_a_day_back_and_forth_cut_nobody_off(tmp_path: Path, seedbus: Command) -> None:
    """Those of both machines, in opposite directions, while rounds have deadlines and peers have heartbeats."""
    (tmp_path / "clock.c").write_text(CLOCK)
    library = tmp_path / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "clock.c"], check=True)
    tables, port = own_tables(tmp_path / "owners"), free_port()
    participation = {"clients": 3, "cohort": 3, "quorum": 2, "deadline_s": 20, "every_s": 0.1}
    what = own_scenario(clock="wall", participation=participation, stop={"rounds": 60})
    (tmp_path / "own.yaml").write_text(dump(what))
    steps = {name: tmp_path / f"{name}.step" for name in ("server", "clients")}

    def stepped(seconds: int) -> None:
        for name, sign in (("server", 1), ("clients", -1)):
            written = steps[name].with_suffix(".new")
            written.write_text(str(sign * seconds))
            written.replace(steps[name])

    def machine(name: str) -> dict[str, str]:
        return {**os.environ, "LD_PRELOAD": str(library), "STEP_FILE": str(steps[name])}

    stepped(0)
    bind, run_folder = f"tcp://127.0.0.1:{port}", tmp_path / "run"
    options = ("--bind", bind, "--out", run_folder, "--patience", "20")
    server = processes.seedbus("server", tmp_path / "own.yaml", *options, env=machine("server"))
    clients = [
        processes.seedbus(
            *("client", "--connect", bind, "--clients", f"{number}-{number}", "--own", table, "--patience", "20"),
            env=machine("clients"),
        )
        for number, table in enumerate(tables)
    ]
    for rounds, days in ((10, 1), (25, -1), (40, 0)):
        wait_for(lambda least=rounds: logged(run_folder) >= least)  # type: ignore[misc]
        stepped(days * DAY_S)
        shown = seedbus("runs", run_folder)
        assert shown.code == 0 and "running" in shown.out and "Traceback" not in shown.err, shown.err
    ends = [process.communicate(timeout=HANGS_S) for process in (server, *clients)]
    assert [process.returncode for process in (server, *clients)] == [0, 0, 0, 0], ends
    events = [json.loads(line) for line in (run_folder / "log.jsonl").read_text().splitlines()]
    times = [datetime.fromisoformat(event["timestamp"]).timestamp() for event in events]
    assert max(times) - min(times) > 1.9 * DAY_S, "the server's clock was set"
    assert sum(event["event"] == "joined" for event in events) == 4, "three owners and the evaluator, once each"
    assert not [event for event in events if event["event"] in ("gone", "refused")]
    results = Results.read(run_folder)
    assert results.summary["version"] == 60 and results.summary["simulated_s"] < 60
    assert (results.rounds["reported"] == 3).all()
