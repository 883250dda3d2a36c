"""Memory and processor time of `seedbus client` beside plain inference with the same network: for small machines.

    python benchmarks/small_client.py

The client has all of MNIST and the CNN, and takes part in each round of DeComFL: P + 1 forward passes of 32 images. The
plain process reads the same images and passes as many batches forward, in torch's inference mode. Both compute on one
thread; memory is the most that was resident, and time that of all threads, from the start of the process to its end.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROUNDS, PERTURBATIONS = 300, 10
PLAIN = f"""
import gzip, os
from pathlib import Path
import numpy as np, torch
from seedbus.models.images.networks import mnist_cnn
torch.set_num_threads(1)
places = os.environ["SEEDBUS_DATA"].split(os.pathsep)
(file,) = [found for place in places for found in Path(place, "mnist").rglob("train-images*.gz")]
images = np.frombuffer(gzip.decompress(file.read_bytes()), np.uint8, offset=16).reshape(-1, 1, 28, 28)
network, draw = mnist_cnn(), np.random.default_rng(1)
with torch.inference_mode():
    for _ in range({ROUNDS * (PERTURBATIONS + 1)}):
        network(torch.from_numpy(images[draw.integers(len(images), size=32)]).float() / 255)
"""


class Used(NamedTuple):
    """What a process has taken: megabytes, and seconds of the processor."""

    memory: float
    seconds: float


def used(process: subprocess.Popen[bytes]) -> Used:
    """Wait for a process. Raises `SystemExit` if it failed."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{process.args!r} ended with exit code {process.returncode}")
    return Used(usage.ru_maxrss / 1000, usage.ru_utime + usage.ru_stime)  # kB on Linux


def client(*options: str, rounds: int = ROUNDS) -> Used:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    settings = {
        "task": "{name: mnist, model: mnist-cnn, batch_size: 32}",
        "partition": "iid",
        "algorithm": f"{{name: decomfl, learning_rate: 0.001, perturbations: {PERTURBATIONS}}}",
        "participation": "{clients: 1, cohort: 1}",
        "faults": "[]",
        "stop": f"{{rounds: {rounds}}}",
        "evaluation": f"{{every: {rounds}}}",
    }
    given = [part for field, value in settings.items() for part in ("--set", f"{field}={value}")]
    command = [sys.executable, "-m", "seedbus"]
    with tempfile.TemporaryDirectory() as folder:
        out = ["--out", f"{folder}/run", "--bind", address, "-q"]
        server = subprocess.Popen([*command, "server", "decomfl-mnist", *given, *out], stdout=subprocess.DEVNULL)
        try:
            found = used(subprocess.Popen([*command, "client", "--connect", address, "-q", *options]))
            if server.wait():
                sys.exit(f"the server ended with exit code {server.returncode}")
            return found
        finally:
            server.kill()


def main() -> None:
    contenders = {
        "plain inference": used(subprocess.Popen([sys.executable, "-c", PLAIN])),
        "`seedbus client`": client(),
        "`seedbus client --nice 0`": client("--nice", "0"),
        "`seedbus client`, of 1 round": client(rounds=1),
    }
    print(f"| {ROUNDS} rounds of {PERTURBATIONS + 1} forward passes | memory | processor time |\n|---|---:|---:|")
    for name, each in contenders.items():
        print(f"| {name} | {each.memory:.0f} MB | {each.seconds:.1f} s |")


if __name__ == "__main__":
    main()
