"""The same work by other simulators of federated learning, beside Seedbus and a plain loop.

    make peers PEERS="--turns 2 --only flower seedbus"

Each of the others is installed from PyPI in an environment of its own below `build/peers`, which borrows this project's
torch. What cannot be installed or fails is a line with the reason. The program for each is a file of `peers/`, as short
as its own documentation makes it. All use one thread, the same samples of each client, and one network whose
convolutions are in channels_last. Three jobs: federated averaging of a CNN on Fashion-MNIST, 28,938 weights, 10 of 100
clients a round, 50 steps of 20 images; softmax regression, 100 of 1,000 clients, 10 steps of 5; and null rounds, in
which 100 of 1,000 clients send ten weights back as they were. The first round does not count. CPU time is user and
system time of all processes; the best of the turns counts. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "peers"
JOBS: dict[str, dict[str, Any]] = {
    "cnn": {"clients": 100, "cohort": 10, "samples": 500, "batch": 20, "epochs": 2, "rounds": 3},
    "softmax": {"clients": 1_000, "cohort": 100, "samples": 50, "batch": 5, "epochs": 1, "rounds": 6},
    "null": {"clients": 1_000, "cohort": 100, "samples": 1, "batch": 1, "epochs": 0, "rounds": 11},
}
FLUKE = "torchvision torchmetrics pandas scikit-learn rich typer datasets psutil diskcache cerberus hydra-core requests"
PEERS: dict[str, list[str]] = {
    "seedbus": [],
    "loop": [],
    "flower": ["flwr[simulation]"],
    "fedlab": ["fedlab"],
    "pfl": ["pfl[pytorch]"],
    "blazefl": ["numpy tqdm", "--no-deps --ignore-requires-python blazefl<3"],  # 3 needs Python 3.14; 2 asks for 3.12
    "fluke": [f"{FLUKE} opacus matplotlib seaborn", "--no-deps fluke-fl"],  # it asks for three trackers besides
}
"""What pip installs for each, call by call; nothing: it runs in this environment."""


class Failed(Exception):
    """A peer cannot be measured; says why in one line."""


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer's environment, which is made if it is not there."""
    calls, folder = PEERS[peer], BUILD / peer
    python, done = folder / "bin" / "python", folder / "installed.json"
    if not calls:
        return Path(sys.executable)
    if not done.exists() or json.loads(done.read_text()) != calls:
        print(f"installing {peer}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        site = next(folder.glob("lib/python*/site-packages"))
        (site / "torch_of_the_project.pth").write_text(str(torch_alone()))
        (BUILD / "constraints.txt").write_text(f"torch=={distribution('torch').version}\n")
        for call in calls:
            pip = ["-m", "pip", "install", "--quiet", "--constraint", BUILD / "constraints.txt"]
            output([python, *pip, *call.split(), *([] if "--no-deps" in call else ["torch"])])
        done.write_text(json.dumps(calls))
    return python


def torch_alone() -> Path:
    """Return a folder with links to torch and to nothing else of this environment."""
    folder, torch = BUILD / "torch", distribution("torch")
    folder.mkdir(parents=True, exist_ok=True)
    for name in {file.parts[0] for file in torch.files or [] if file.parts[0] != ".."}:
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(Path(str(torch.locate_file(name))))
    return folder


def output(command: Iterable[object]) -> str:
    """Run a command in one thread; return what it prints, or raise Failed with the last line of its errors."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    ended = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()] or [f"exit code {ended.returncode}"]
        raise Failed(next((line for line in reversed(lines) if "ERROR" in line), lines[-1])[:200])
    return ended.stdout


def measured(peer: str, job: str, folder: Path) -> dict[str, Any]:
    """Run a job once in a process of its own; return what `peers/work.py` reports."""
    text = json.dumps({"model": job, "rate": 0.05, "folder": str(folder)} | JOBS[job])
    printed = output([python_of(peer), Path(__file__).parent / "peers" / f"{peer}_.py", text])
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def by_cpu(result: dict[str, Any]) -> float:
    return float(result["cpu_s"])


def table(best: dict[str, dict[str, Any]]) -> str:
    """Return the best of the turns as a Markdown table."""
    lines = [
        "| | CNN: CPU s a round | wall s | peak MB | accuracy | softmax: CPU ms a round | null: CPU ms a round |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for peer, jobs in best.items():
        cnn = jobs["cnn"]
        lines.append(
            f"| {peer} {cnn['version']} | {cnn['cpu_s']:.2f} | {cnn['wall_s']:.2f} | {cnn['peak_mb']:,.0f}"
            f" | {cnn['accuracy']:.1%} | {1e3 * jobs['softmax']['cpu_s']:,.0f} | {1e3 * jobs['null']['cpu_s']:,.1f} |"
        )
    return "\n".join(lines)


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown processor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures of every turn go")
    asked = parser.parse_args()
    folder = Path(os.environ.get("SEEDBUS_DATA", "data")) / "fashion-mnist"
    turns: dict[str, dict[str, list[dict[str, Any]]]] = {peer: {job: [] for job in JOBS} for peer in asked.only}
    print(f"{processor()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}; load {os.getloadavg()[0]:.1f}")
    for _ in range(asked.turns):
        for peer in list(turns):
            try:
                for job, found in turns[peer].items():
                    found.append(measured(peer, job, folder))
                    print(f"{peer}, {job}: {1e3 * by_cpu(found[-1]):,.1f} ms", file=sys.stderr, flush=True)
            except Failed as why:
                print(f"{peer}: {why}", flush=True)
                del turns[peer]
    if asked.json:
        asked.json.write_text(json.dumps(turns, indent=1))
    print(table({peer: {job: min(each, key=by_cpu) for job, each in jobs.items()} for peer, jobs in turns.items()}))
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
