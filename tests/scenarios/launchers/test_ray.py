"""Workers on the nodes of a real Ray cluster, two node processes of this machine: bits, keys, and failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from clusters import RunWatcher
from plugin_files import SIGNS
from processes import is_alive, kill, logged, seedbus, started_by, wait_for, workers_of
from worker_kills import alike
from worlds import lossy

from seedbus.bus.zeromq.keys import Identity, KeyPair
from seedbus.plugin import load_plugin
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.launchers.ray import Ray
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.access import WorkerKeys
from seedbus.scenarios.transports.placement import Placement

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason='needs Ray: `pip install "seedbus[cluster]"`'),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
    pytest.mark.usefixtures("no_plugins"),
]
SUPPORT = Path(__file__).parents[2] / "support"


@dataclass
class Nodes:
    """The cluster: its address, and the process of the node that tests may kill."""

    address: str
    second: int


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    quiet = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": "/tmp"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, SUPPORT / "ray_nodes.py"], env=quiet, text=True, **pipes)
    assert process.stdout is not None
    address, second = process.stdout.readline().split()
    yield Nodes(address, int(second))
    process.communicate()


def scenario_file(folder: Path, **changes: Any) -> Path:
    path = folder / "what.yaml"
    path.write_text(dump(lossy(**changes).resolved()))
    return path


@pytest.mark.slow
def test_more_than_the_nodes_have_is_refused_with_what_they_have(nodes: Nodes) -> None:
    launcher = Ray(address=nodes.address, worker_gpus=0.25)
    try:
        assert launcher.workers(8) == 1 and Ray(address=nodes.address).workers(8) == 4
        with pytest.raises(ScenarioError) as refused:
            launcher.check(2)
    finally:
        launcher.close()
    assert str(refused.value) == (
        "--workers 2: each needs 1 CPU and 0.25 GPUs, and the nodes have room for 0 (2 nodes with 2 CPUs and no GPU); "
        "expected less for each, by --launch worker_cpus and worker_gpus"
    )


@pytest.mark.slow
def test_each_worker_has_a_key_of_its_own_that_no_list_variable_or_log_shows(
    tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued: list[Identity] = []
    revoked: list[Identity] = []
    exposed: list[str] = []
    issue, revoke = WorkerKeys.issue, WorkerKeys.revoke

    def issuing(self: WorkerKeys, share: Any) -> Identity | None:
        identity = issue(self, share)
        issued.extend([] if identity is None else [identity])
        return identity

    def revoking(self: WorkerKeys, identity: Identity) -> None:
        revoked.append(identity)
        revoke(self, identity)

    monkeypatch.setattr(WorkerKeys, "issue", issuing)
    monkeypatch.setattr(WorkerKeys, "revoke", revoking)

    class Looking(RunWatcher):
        def noted(self, event: str, **facts: Any) -> None:
            super().noted(event, **facts)
            if event == "joined" and not facts["missing"]:
                exposed.extend(seen_in_proc([each.own for each in issued]))

    watcher, what = Looking(), lossy(stop={"rounds": 20})
    placement = Placement("tcp", 2, launcher=Ray(address=nodes.address))
    before = signal.getsignal(signal.SIGTERM)
    results = run(what, tmp_path / "run", placement=placement, observer=watcher)
    assert alike(results, run(what, tmp_path / "here")) and watcher.joined == 2
    assert signal.getsignal(signal.SIGTERM) is before, "Ray would put its own in the place of ours"
    assert len(issued) == len({each.own.public for each in issued}) == 2 and revoked == issued
    assert not watcher.endpoint.startswith("tcp://127.") and not exposed
    secrets = [each.own.secret for each in issued]
    logs = [*Path("/tmp/ray/session_latest/logs").resolve().rglob("*"), *(tmp_path / "run").rglob("*")]
    files = [path for path in logs if path.is_file()]
    assert len(files) > 10 and not [path for path in files if any(key in path.read_bytes() for key in secrets)]
    assert "hosting clients 0" in (tmp_path / "run" / "log.jsonl").read_text()


def seen_in_proc(pairs: list[KeyPair]) -> list[str]:
    """Return the argument lists and environments of all processes in which a secret key is."""
    found = []
    for name in ("cmdline", "environ"):
        for path in Path("/proc").glob(f"[0-9]*/{name}"):
            try:
                content = path.read_bytes()
            except OSError:
                continue
            found += [str(path) for pair in pairs if pair.secret in content]
    return found


@pytest.mark.slow
def test_ctrl_c_ends_all_workers_and_keeps_the_run(tmp_path: Path, nodes: Nodes) -> None:
    options = ("--launcher", "ray", "--launch", f"address={nodes.address}", "--workers", 2, "--out", tmp_path / "run")
    process = seedbus("run", scenario_file(tmp_path, stop={"rounds": 100_000}), *options)
    log = tmp_path / "run" / "log.jsonl"
    wait_for(lambda: log.exists() and '"event": "round"' in log.read_text())
    workers = [each for node in ray_workers() for each in workers_of(node)]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == Exit.INTERRUPTED
    resumes = f"seedbus run --workers 2 --launcher ray --launch address={nodes.address} --resume {tmp_path / 'run'}"
    assert said.splitlines()[-1] == f"seedbus: stopped; every closed round is kept: go on with `{resumes}`"
    assert len(workers) == 2
    wait_for(lambda: not any(map(is_alive, workers)))


def ray_workers() -> list[int]:
    """Return the processes of this machine in which an actor of ours may be."""
    commands = {path: path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()}
    return [int(path.parent.name) for path, command in commands.items() if command.startswith(b"ray::Berth")]


@pytest.mark.slow
def test_a_run_whose_node_is_lost_ends_in_the_same_bits(tmp_path: Path, nodes: Nodes) -> None:
    """The plug-in travels to the nodes, which have no such file."""
    load_plugin(SIGNS)
    changes: dict[str, Any] = {"algorithm": {"name": "signs", "learning_rate": 0.01}, "stop": {"rounds": 300}}
    whole = run(lossy(**changes), tmp_path / "here")
    options = ("--launcher", "ray", "--launch", f"address={nodes.address}", "--workers", 2, "--plugin", SIGNS)
    process = seedbus("run", scenario_file(tmp_path, **changes), *options, "--out", tmp_path / "run", "-q")
    wait_for(lambda: logged(tmp_path / "run") > 50)
    assert workers_at(nodes.second), "a worker is on the node that is going to be lost"
    for pid in started_by(nodes.second):
        kill(pid, signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == 0, said
    results = Results.read(tmp_path / "run")
    assert results.digest == whole.digest and alike(results, whole)
    assert logged(tmp_path / "run", "placed") == 3, "one has come in the place of the one that was lost"


def workers_at(node: int) -> list[int]:
    return [worker for process in started_by(node) for worker in workers_of(process)]
