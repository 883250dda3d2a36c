"""Runs, servers and clients need the core alone; a command that needs an extra names it before it does any work."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import core_alone
import pytest
from commands import Command
from hidden_folders import free_port

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.extras import lacks
from seedbus.scenarios.schema.yaml_text import dump

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OF_EXTRAS = {
    "matplotlib": "study",
    "pandas": "study",
    "plotly": "pages",  # of two extras the one that brings less
    "ray": "cluster",
    "scipy": "study",
    "submitit": "cluster",
}
RUN = {
    "name": "small",
    "task": {"name": "quadratic", "dimension": 10},
    "algorithm": {"name": "decomfl", "learning_rate": 0.01},
    "participation": {"clients": 4, "cohort": 2},
    "stop": {"rounds": 4},
}
SHORT = ["quickstart", "--set", "stop.rounds=3", "--set", "participation.clients=8", "-q"]
ALONE = [sys.executable, "-P", core_alone.__file__]


def alone(*command: str) -> tuple[int, str, set[str]]:
    """Run a command where nothing but the core is installed; return its code, what it said, and what it imported."""
    done = subprocess.run([*ALONE, *command], capture_output=True, text=True)
    said, _, imported = done.stderr.rpartition(core_alone.IMPORTED)
    return done.returncode, done.stdout + said, set(imported.split())


@pytest.mark.parametrize("package", OF_EXTRAS)
def test_the_extra_that_brings_a_package_is_what_its_metadata_say(package: str) -> None:
    assert lacks(f"{package}.part") == (
        f'{package} is not installed here; expected it after `pip install "seedbus[{OF_EXTRAS[package]}]"`'
    )


def test_the_extras_of_the_package_page_are_what_its_first_run_needs() -> None:
    page = (Path(__file__).parents[2] / "PACKAGE.md").read_text(encoding="utf-8")
    first, _, extras = page.partition('pip install "seedbus[')[2].partition("]")[0], *page.partition("Extras:")[1:]
    brought = {
        line.partition(">=")[0] for extra in first.split(",") for line in PROJECT["optional-dependencies"][extra]
    }
    assert "seedbus run quickstart" in page and {"scikit-learn", "plotly"} <= brought  # its data, and its page
    told = set(re.findall(r"`(\w+)`\s\(", extras)) | {"dev"}
    assert told == set(PROJECT["optional-dependencies"])


def test_what_no_extra_brings_is_a_fault() -> None:
    assert lacks("no_such_package") is None


@pytest.mark.slow
def test_runs_servers_and_clients_import_the_core_and_nothing_else(tmp_path: Path) -> None:
    """What is required without an extra is what these import; export writes models by safetensors, of 1.4 MB."""
    code, said, imported = alone("run", *SHORT, "--out", str(tmp_path / "run"))
    assert code == Exit.OK and str(lacks("plotly"))[:40] in said, said
    assert imported | {"safetensors"} == {line.partition(">=")[0] for line in PROJECT["dependencies"]}
    address = f"tcp://127.0.0.1:{free_port()}"
    server = subprocess.Popen(
        [*ALONE, "server", *SHORT, "--bind", address, "--out", str(tmp_path / "server")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        code, said, of_client = alone("client", "--connect", address)
        assert code == Exit.OK and server.wait() == Exit.OK, said
        assert of_client == imported - {"pyarrow", "rich", "structlog"}  # for its ledger, closing table and log
    finally:
        server.kill()
        server.communicate()
    assert not (tmp_path / "run/report.html").exists()
    digests = {
        (tmp_path / name / "results.json").read_text().partition('"digest": "')[2][:32] for name in ("run", "server")
    }
    assert len(digests) == 1 and all(map(len, digests))


@pytest.mark.slow
def test_what_looks_at_runs_needs_the_core_or_names_the_extra(tmp_path: Path) -> None:
    file, out = tmp_path / "small.yaml", str(tmp_path / "small")
    file.write_text(dump(RUN))
    for command, package in (
        (["run", str(file), "--out", out], None),
        (["report", out], None),
        (["verify", out], None),
        (["explain", str(file)], None),
        (["list"], None),
        (["runs", out], None),
        (["export", out, "--out", f"{out}/m.safetensors"], None),
        (["analyse", out], "plotly"),
        (["compare", out, out], "scipy"),
        (["run", str(file), "--live", "0"], "plotly"),
        (["study", "dropout"], "scipy"),
    ):
        code, said, _ = alone(*command)
        assert code == (Exit.OK if package is None else Exit.USAGE), (command, said)
        assert package is None or (said.startswith("seedbus: ") and said.endswith(f"{lacks(package)}\n")), said


def test_a_study_says_what_it_lacks_before_its_first_run(seedbus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    Path("some.yaml").write_text(dump({"name": "some", "base": RUN, "seeds": [1]}))
    answer = seedbus("study", "some.yaml")
    assert answer.code == Exit.USAGE and answer.err == f"seedbus: seedbus study: {lacks('matplotlib')}\n"
    assert not Path("studies").exists()
    table = seedbus("study", "some.yaml", "-q", "--format", "markdown")
    assert table.code == Exit.OK and table.out.startswith("| row |"), table.err
    assert table.err == f"seedbus: note: no page is written: {lacks('matplotlib')}\n"
