"""The files of examples/cluster/: a stopped job goes on; units, image and compose file are what their readers take."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Command
from processes import logged, wait_for
from worlds import lossy

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "cluster"
BEGINS = "run-or-resume.sh"


def options(words: list[str]) -> set[str]:
    return {word for word in words if word.startswith("--")}


def known_options(seedbus: Command, name: str) -> set[str]:
    return options(seedbus(name, "--help").out.replace("│", " ").split())


@pytest.mark.parametrize("name", ["seedbus.service", "seedbus-client.service"])
def test_the_units_are_ones_that_systemd_takes_and_their_commands_are_ours(
    tmp_path: Path, seedbus: Command, name: str
) -> None:
    text = (FOLDER / name).read_text()
    (begin,) = [line.removeprefix("ExecStart=") for line in text.splitlines() if line.startswith("ExecStart=")]
    program, command, *rest = begin.split()
    if command == "server":
        assert Path(program).name == BEGINS and seedbus("explain", rest[1], "fields").code == 0
    assert command == ("client" if "client" in name else "server")
    assert options(rest) <= known_options(seedbus, command)
    ends = text.partition("RestartPreventExitStatus=")[2].splitlines()[0].split()
    assert {int(each) for each in ends} <= {*Exit}
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("systemd-analyze is not installed: the unit was read by this test alone")
    unit = tmp_path / name
    unit.write_text(text.replace(program, "/bin/true").replace("User=seedbus", "User=root"))
    verified = subprocess.run([systemd, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert verified.returncode == 0 and name not in verified.stderr, verified.stderr


def test_the_container_is_installed_and_started_by_options_that_there_are(seedbus: Command) -> None:
    text = (FOLDER / "Containerfile").read_text()
    steps = [line.split(maxsplit=1) for line in text.replace("\\\n", " ").splitlines() if line[:1].isupper()]
    (installs,) = [step for kind, step in steps if kind == "RUN" and "pip install" in step]
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "--help"], capture_output=True, text=True, check=True)
    assert options(re.split(r"[\s+]+", installs)) <= options(re.split(r"[\s,]+", pip.stdout))
    arguments = dict(step.split("=") for kind, step in steps if kind == "ARG")
    root = FOLDER.parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\$\{?(\w+)", installs)) == {*arguments} and arguments["EXTRAS"] in extras
    assert all((root / step.split()[0]).exists() for kind, step in steps if kind == "COPY")
    assert all((root / each).exists() for each in re.findall(r"/src/([\w.]+)", installs))
    (command,) = [json.loads(step) for kind, step in steps if kind == "CMD"]
    assert ["seedbus"] in [json.loads(step) for kind, step in steps if kind == "ENTRYPOINT"]
    assert seedbus(*command).code == 0 and "Usage: seedbus client" in seedbus(*command).out
    (typed,) = re.findall(r"seedbus (client .*)", text)
    assert options(typed.split()) <= known_options(seedbus, "client")


def test_the_compose_file_has_commands_of_ours(seedbus: Command) -> None:
    document: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    server, clients = document["services"]["server"], document["services"]["clients"]
    assert server["entrypoint"] == ["sh", f"/usr/local/bin/{BEGINS}"] and server["command"][0] == "server"
    assert all(
        (FOLDER / each["build"]["context"] / each["build"]["dockerfile"]).is_file() for each in (server, clients)
    )
    assert options(server["command"]) <= known_options(seedbus, "server")
    assert clients["command"][0] == "client"
    assert options(clients["command"]) <= known_options(seedbus, "client")
    assert str(clients["deploy"]["replicas"]) == server["command"][server["command"].index("--workers") + 1]
    for service in (server, clients):
        mounted = [Path(volume.split(":")[1]) for volume in service["volumes"]]
        named = [word for word in service["command"] if word.startswith(("keys", "runs")) or word == "server.public"]
        assert all(any(Path("/seedbus", word).is_relative_to(place) for place in mounted) for word in named)


@pytest.mark.parametrize("settings", [["--set", "stop.rounds=9"], ["--set=stop.rounds=9"], ["--set", "faults=[]"]])
def test_a_run_goes_on_without_its_settings_however_they_were_written(tmp_path: Path, settings: list[str]) -> None:
    program, folder = tmp_path / "seedbus", tmp_path / "a run"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    folder.mkdir()
    rest = [*settings, "--workers", "2", *settings, "--launch", "nodes=2 or 3"]

    def told(variables: dict[str, str]) -> list[str]:
        command = ["sh", str(FOLDER / BEGINS), "run", str(folder), "digits", *rest]
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        ran = subprocess.run(command, env=os.environ | path | variables, capture_output=True, text=True, check=True)
        return ran.stdout.splitlines()

    assert told({}) == ["run", "digits", "--out", str(folder), *rest]
    (folder / "journal.sqlite").touch()
    for variables in ({}, {"previous": "--set"}):
        goes_on = ["run", "--resume", str(folder), "--workers", "2", "--launch", "nodes=2 or 3"]
        assert told(variables) == goes_on


def test_a_job_has_a_worker_for_each_cpu_that_it_asks_for(tmp_path: Path) -> None:
    (tmp_path / "seedbus").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "seedbus").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SEEDBUS_EXAMPLES": str(FOLDER)}
    script = FOLDER / "seedbus.sbatch"

    def workers(more: dict[str, str]) -> str:
        command = ["sh", str(script), str(tmp_path / "run"), "digits"]
        ran = subprocess.run(command, env=os.environ | variables | more, capture_output=True, text=True, check=True)
        return ran.stdout.splitlines()[-1]

    assert f"#SBATCH --cpus-per-task={workers({})}\n" in script.read_text()
    assert workers({"SLURM_CPUS_PER_TASK": "8"}) == "8"


@pytest.mark.slow
def test_a_job_that_is_stopped_asks_to_be_queued_again_and_then_goes_on(tmp_path: Path) -> None:
    """`seedbus` and `scontrol` are found where a cluster's own would be."""
    what = lossy(stop={"rounds": 150})
    whole = run(what, tmp_path / "here")
    (tmp_path / "what.yaml").write_text(dump(lossy(stop={"rounds": 40}).resolved()))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "seedbus").write_text(f'#!/bin/sh\nexec {sys.executable} -m seedbus "$@" --quiet\n')
    (programs / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "77", "SEEDBUS_EXAMPLES": str(FOLDER)}
    command = ["sh", *map(str, (FOLDER / "seedbus.sbatch", tmp_path / "run", tmp_path / "what.yaml"))]
    command += ["--set", "stop.rounds=150"]

    def job() -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=os.environ | variables, **pipes)

    first = job()
    wait_for(lambda: logged(tmp_path / "run") > 50)
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate()
    assert first.returncode == 143 and "every closed round is kept" in said, said
    assert (tmp_path / "asked").read_text() == "requeue 77\n"
    second = job()
    _, said = second.communicate()
    assert second.returncode == 0, said
    results = Results.read(tmp_path / "run")
    assert results.digest == whole.digest and results.summary["was_resumed"]
    assert (tmp_path / "asked").read_text() == "requeue 77\n", "a job whose run has ended is not queued again"
