"""Thousands of connections that come and go keep no honest process out."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from hostile_peers import HOST
from processes import logged, seedbus, wait_for
from tcp_proxy import CountingProxy
from worlds import HISO, lossy

from seedbus.bus.zeromq.sockets import BACKLOG
from seedbus.scenarios.schema.yaml_text import dump

PROGRAM = Path(__file__).parents[1] / "support" / "churn.py"
LASTS_S = 40
MOST = 100_000  # connections of each of two programs


def waiting(port: int) -> int:
    """Return how many connections to a port of this machine wait to be accepted."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    listening = [line for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "0A"]
    return sum(int(line[4].partition(":")[2], 16) for line in listening)


@pytest.mark.slow
def test_a_worker_that_was_cut_off_comes_back_while_strangers_connect_and_leave_without_a_pause(tmp_path: Path) -> None:
    (tmp_path / "what.yaml").write_text(dump(lossy(algorithm=HISO, stop={"rounds": 100_000}).resolved()))
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    count = partial(logged, tmp_path / "run")
    begun = []
    with CountingProxy(port) as proxy:
        try:
            options = ("--bind", f"tcp://{HOST}:{port}", "--workers", 2, "--out", tmp_path / "run")
            begun.append(seedbus("server", tmp_path / "what.yaml", *options, "-q", stderr=None, stdout=None))
            wait_for((tmp_path / "run" / "log.jsonl").exists)
            for endpoint in (f"tcp://{HOST}:{port}", proxy.endpoint):
                begun.append(seedbus("client", "--connect", endpoint, "-q", stderr=None, stdout=None))
            wait_for(lambda: count("round") > 20)
            command = [sys.executable, str(PROGRAM), str(port), str(LASTS_S), str(MOST)]
            attacks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
            begun += attacks
            for attack in attacks:
                assert attack.stdout is not None and attack.stdout.readline() == "a thousand\n"
            rounds = count("round")
            wait_for(lambda: count("round") > rounds + 5)
            assert attacks[0].poll() is None, "the run stands still"
            joined = count("joined")
            proxy.cut()
            longest = 0
            while count("joined") == joined and attacks[0].poll() is None:
                longest = max(longest, waiting(port))
                time.sleep(0.05)
            assert attacks[0].poll() is None, "it is kept out"
            # it is the last of those that wait, and would give up before its turn if they were thousands
            assert longest <= BACKLOG + 1, f"{longest} connections waited"
            rounds = count("round")
            wait_for(lambda: count("round") > rounds)
            assert {attack.poll() for attack in attacks} <= {None, 0}, "neither of them has failed"
        finally:
            for process in begun:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()
