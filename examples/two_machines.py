"""Two machines: a server and two processes of clients over TCP, and the same bits as in one process.

    python examples/two_machines.py

Here all are on one machine. On two, the server binds an address that the other one reaches, and the clients' commands
run there; with `seedbus keys` nothing is readable on the way.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import seedbus

SETTINGS = {"stop.rounds": 40, "evaluation.every": 40}
COMMAND = [sys.executable, "-m", "seedbus"]


def main() -> None:
    alone = seedbus.run("quickstart", settings=SETTINGS)
    settings = [part for field, value in SETTINGS.items() for part in ("--set", f"{field}={value}")]
    folder = Path(f"{alone.folder}-tcp")
    bind = ["--bind", "tcp://127.0.0.1:0", "--out", str(folder)]
    server = subprocess.Popen(
        [*COMMAND, "server", "quickstart", *settings, *bind], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    address = next(iter(server.stderr or ())).split("listening at ")[1].split(";")[0]
    halves = ("0-24", "25-49")
    client = [*COMMAND, "client", "--connect", address, "--clients"]
    hosts = [subprocess.Popen([*client, half], stderr=subprocess.DEVNULL) for half in halves]
    for host in hosts:
        host.wait()
    server.communicate()
    together = seedbus.Results.read(folder)
    print(f"{'':<14}{'accuracy':>9}{'bytes':>9}  digest")
    for name, results in (("one process", alone), ("three, by TCP", together)):
        accuracy, sent = results.metrics["accuracy"].iloc[-1], results.summary["traffic"]["bytes"]
        print(f"{name:<14}{accuracy:>9.1%}{sent:>9,}  {results.digest}")


if __name__ == "__main__":
    main()
