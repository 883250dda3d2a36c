"""A scenario as an app of Flower: it trains as the run did, and what it could not keep is refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from commands import Command
from numpy.typing import NDArray

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.exporting.federation import Federation
from seedbus.scenarios.exporting.flower import write_app
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import Scenario

DIGITS: dict[str, Any] = {
    "name": "3_tests",
    "task": {"name": "digits", "batch_size": 32},
    "partition": "iid",
    "participation": {"clients": 5},
    "evaluation": {"every": 2},
    "stop": {"rounds": 4},
}


def world(**changes: Any) -> Scenario:
    algorithm = changes.pop("algorithm", {"name": "fedavg", "local_steps": 3})
    return load(DIGITS | {"algorithm": algorithm} | changes)


def averaged(ours: Federation, clients: int) -> NDArray[np.float64]:
    """Return the model after all rounds of a server that does nothing but average models by their weights."""
    x, weights = ours.start().astype(np.float64), np.array([ours.weight(client) for client in range(clients)])
    for round in range(ours.rounds):
        x = np.average([ours.trained(client, round, x) for client in range(clients)], axis=0, weights=weights)
    return x


CLIENT_SIDE: list[dict[str, Any]] = [
    {"name": "fedavg", "local_steps": 3},
    {"name": "fedavg", "epochs": 1, "weighting": "uniform", "learning_rate": {0: 0.2, 2: 0.05}},
    {"name": "fedprox", "proximal": 0.5, "momentum": 0.5, "clip": 0.5, "weight_decay": 0.01, "decay": 0.9},
    {"name": "fedlc", "also": ["feddecorr"]},
]


@pytest.mark.parametrize("algorithm", CLIENT_SIDE, ids=str)
def test_clients_of_an_app_train_as_those_of_the_run(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    """The mean of what `Federation` trains is the run's model, but for one rounding to float32 in each round."""
    folder = run(world(algorithm=algorithm), tmp_path / "run", page=False).folder
    write_app(folder, tmp_path / "app")
    ours = Federation(tmp_path / "app" / "app" / "scenario.yaml", {})
    assert np.allclose(averaged(ours, 5), replay(folder).point, rtol=0, atol=1e-6)
    other = Federation(tmp_path / "app" / "app" / "scenario.yaml", {"seed": 2})
    assert not np.allclose(other.start(), ours.start(), rtol=0, atol=1e-2)


STRATEGIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "FedAvg": ({"name": "fedprox"}, {}),
    "FedAvgM of a rate": (
        {"name": "fedavg", "server_learning_rate": 0.5},
        {"server_learning_rate": 0.5, "server_momentum": 0.0},
    ),
    "FedAvgM": ({"name": "fedavgm"}, {"server_learning_rate": 1.0, "server_momentum": 0.4}),
    "FedAdam": ({"name": "fedadam"}, {"eta": 0.01, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}),
    "FedYogi": ({"name": "fedyogi"}, {"eta": 0.01, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}),
    "FedAdagrad": ({"name": "fedadagrad"}, {"tau": 1e-3}),
}


@pytest.mark.parametrize("case", STRATEGIES)
def test_an_app_names_flowers_strategy_and_its_arguments(seedbus: Command, tmp_path: Path, case: str) -> None:
    algorithm, arguments = STRATEGIES[case]
    what = world(algorithm=algorithm, participation={"clients": 5, "cohort": 2}, stop={"rounds": 1})
    folder = run(what, tmp_path / "run", page=False).folder
    said = seedbus("export", folder, "flower", "--out", tmp_path / "app")
    assert (said.code, said.err) == (Exit.OK, "") and ("bias" in said.out) == (case == "FedAdam")
    config = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    nodes = {"fraction_train": 0.4, "min_train_nodes": 2, "min_available_nodes": 5, "fraction_evaluate": 0.0}
    assert 'name = "app-3-tests"' in (tmp_path / "app" / "pyproject.toml").read_text()
    assert config["strategy"].items() >= {"name": case.split()[0], **nodes, **arguments}.items()
    assert config["scenario"]["stop.rounds"] == 1 and config["scenario"]["task.batch_size"] == 32
    assert "$" not in (tmp_path / "app" / "README.md").read_text()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a scalar-only one": ({"algorithm": "decomfl"}, "clients of decomfl do not send models"),
    "a server that remembers": ({"algorithm": "scaffold"}, "what the server and the clients of scaffold do"),
    "clients that remember": ({"algorithm": "moon"}, "what the server and the clients of moon do"),
    "a method beside another": (
        {"algorithm": {"name": "fedavgm", "also": ["fedcm"]}},
        "what the server and the clients of fedcm do",
    ),
    "β₁ of FedAdagrad": (
        {"algorithm": {"name": "fedadagrad", "beta1": 0.9}},
        "has no β₁, which is 0.9 here; expected algorithm.beta1: 0",
    ),
    "a rule": ({"algorithm": {"name": "fedavg", "aggregation": "median"}}, "keep algorithm.aggregation; expected"),
    "a codec": (
        {"algorithm": {"name": "fedavg", "compression": "top-k", "error_feedback": True}},
        "keep algorithm.compression, algorithm.error_feedback; expected a run without",
    ),
    "faults": ({"faults": [{"fault": "label-flip", "fraction": 0.4}]}, "keep faults; expected a run without"),
    "a deadline": (
        {"participation": {"clients": 5, "cohort": 3, "over_selection": 1.5}},
        "keep participation.over_selection; expected",
    ),
    "a target": ({"stop": {"rounds": 1, "target": {"value": 0.9}}}, "keep stop.target; expected"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_an_app_would_not_keep_is_refused(seedbus: Command, tmp_path: Path, case: str) -> None:
    changes, what = REFUSED[case]
    folder = run(world(**{"stop": {"rounds": 1}, **changes}), tmp_path / "run", page=False).folder
    said = seedbus("export", folder, "flower", "--out", tmp_path / "app")
    assert said.code == Exit.USAGE and said.err.count("\n") == 1 and what in said.err
    assert not (tmp_path / "app").exists()


def test_an_app_is_not_written_over_something_else(seedbus: Command, tmp_path: Path) -> None:
    folder = run(world(stop={"rounds": 1}), tmp_path / "run", page=False).folder
    said = seedbus("export", folder, "flower", "--out", folder)
    assert said.code == Exit.FOLDER and "there is something here already" in said.err
    for what in ("flower", "zip"):
        said = seedbus("export", folder, what)
        assert said.code == Exit.USAGE and said.err.startswith("seedbus: --out: missing; expected a ")
        assert seedbus("export", folder, what, "--at", 1).err.startswith("seedbus: --at: ")


class Flower(NamedTuple):
    """Flower in an environment of its own, with a SuperLink that simulates."""

    program: Path
    variables: dict[str, str]

    def run(self, app: Path, out: Path, clients: int, **changed: Any) -> dict[str, Any]:
        """Run an app; return its last line of metrics."""
        settings = " ".join(f"{name}={json.dumps(value)}" for name, value in {"out": str(out), **changed}.items())
        command: list[Any] = [self.program, "run", app, "local", "--stream", "--run-config", settings]
        nodes = ["--federation-config", f"num-supernodes={clients}"]
        said = subprocess.run([*command, *nodes], env=self.variables, capture_output=True, text=True, timeout=600)
        assert (out / "metrics.jsonl").exists(), said.stdout[-4000:] + said.stderr[-4000:]
        found: dict[str, Any] = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
        return found


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    """Flower, installed beside this Python's packages."""
    folder = tmp_path_factory.mktemp("flower")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    programs = folder / "venv" / "bin"
    pip: list[Any] = [programs / "python", "-m", "pip", "install", "-q", "flwr[simulation]>=1.42"]
    installed = subprocess.run(pip, capture_output=True, text=True, timeout=600)
    if installed.returncode:
        pytest.skip(f"Flower cannot be installed: {installed.stderr.strip().splitlines()[-1][:200]}")
    own = [each for each in sys.path if "site-packages" in each or (Path(each) / "seedbus" / "__init__.py").exists()]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "venv" / "lib" / version / "site-packages" / "beside.pth").write_text("\n".join(own))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    home = folder / "home"
    home.mkdir()
    (home / "config.toml").write_text(f'[superlink.local]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    variables = os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": "/tmp",  # names of sockets are short
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    link: list[Any] = [programs / "flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess"]
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            [*link, "--host", "127.0.0.1", "--port", str(port)], env=variables, stdout=log, stderr=log
        )
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if server.poll() is None and not probe.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.1)
        yield Flower(programs / "flwr", variables)
    finally:
        server.terminate()
        server.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", pytest.param("fedyogi", marks=pytest.mark.soak)])
def test_flower_ends_at_the_model_of_the_run(tmp_path: Path, flower: Flower, name: str) -> None:
    """All clients take part in each round; Flower sums in float32 in the order of arrival, which moves last bits."""
    results = run(world(algorithm={"name": name, "local_steps": 5}), tmp_path / "run", page=False)
    write_app(results.folder, tmp_path / "app")
    found = flower.run(tmp_path / "app", tmp_path, clients=5)
    from safetensors.numpy import load_file

    theirs, last = load_file(tmp_path / "model.safetensors"), replay(results.folder)
    ours = last.problem.state_dict(last.point)
    assert theirs.keys() == ours.keys()
    assert max(np.abs(theirs[each] - ours[each]).max() for each in ours) < 1e-3
    start = last.problem.state_dict(last.problem.x0())
    assert max(np.abs(start[each] - ours[each]).max() for each in ours) > 2e-2, "a model moves much further"
    assert found["rounds"] == 4 and abs(found["accuracy"] - results.summary["metrics"]["accuracy"]) < 0.01


@pytest.mark.slow
@pytest.mark.soak
def test_settings_of_flowers_run_change_the_scenario(tmp_path: Path, flower: Flower) -> None:
    folder = run(world(), tmp_path / "run", page=False).folder
    write_app(folder, tmp_path / "app")
    changed: dict[str, Any] = {"scenario.stop.rounds": 1, "scenario.algorithm.learning_rate": 1e-7}
    assert flower.run(tmp_path / "app", tmp_path, 5, **changed)["rounds"] == 1
    from safetensors.numpy import load_file

    x0 = replay(folder, 0)
    start, theirs = x0.problem.state_dict(x0.point), load_file(tmp_path / "model.safetensors")
    assert max(np.abs(theirs[each] - start[each]).max() for each in start) < 1e-5
