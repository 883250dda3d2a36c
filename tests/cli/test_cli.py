"""The command line: its output on stdout and stderr, its exit codes, and one sentence for every mistake."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pydantic_core
import pytest
import typer
from commands import Command
from plugin_files import SIGNS, forget
from processes import seedbus as process_of
from reference_tables import BEGIN, inserted
from worlds import TINY, scenario

from seedbus.agents.client.replicas import Replicas
from seedbus.algorithms.contract import Replica
from seedbus.cli.former import FORMER
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.schema import loading
from seedbus.scenarios.schema.loading import library
from seedbus.scenarios.schema.yaml_text import dump

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
COMMANDS = ["init", "list", "explain", "run", "study", "compare", "analyse", "runs", "report", "verify", "export"]
COMMANDS += ["server", "client", "keys", "check-plugin", "stress"]


def test_json_is_one_object_on_stdout_and_nothing_else(seedbus: Command) -> None:
    ran = seedbus("run", "small.yaml", "--out", "run", "--format", "json")
    summary = json.loads(ran.out)
    assert ran.code == Exit.OK and summary["rounds"] == 5 and "round 5/5" in ran.err
    assert json.loads(seedbus("report", "run", "--format", "json").out) == summary
    replayed = json.loads(seedbus("export", "run", "--format", "json", "--out", "model.safetensors").out)
    assert len(bytes.fromhex(replayed.pop("chain"))) == 16
    assert replayed == {"round": 5, "version": 5, "digest": summary["digest"], "out": "model.safetensors"}
    assert (
        json.loads(seedbus("explain", "small.yaml", "fields", "--format", "json").out)
        == scenario(stop={"rounds": 5}).resolved()
    )
    assert json.loads(seedbus("list", "--format", "json").out).keys() == library().keys()
    assert "properties" in json.loads(seedbus("list", "schema").out)


def test_quiet_says_nothing_but_the_results(seedbus: Command) -> None:
    ran = seedbus("run", "small.yaml", "--quiet")
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert "final digest" in ran.out and "runs/small-1" in ran.out
    assert "runs/small-2" in seedbus("run", "small.yaml", "-q").out
    assert seedbus("report", "runs/small-1").out == ran.out == f"{Results.read('runs/small-1')}\n"


def test_a_finished_run_is_shown_and_not_run_again(seedbus: Command) -> None:
    first = seedbus("run", "small.yaml", "-q", "--out", "run")
    assert seedbus("run", "--resume", "run", "-q") == first
    assert seedbus("run", "small.yaml", "--resume", "run", "-q") == first


def test_what_check_prints_is_a_scenario_file(seedbus: Command) -> None:
    text = seedbus("explain", "small.yaml", "fields", "--set", "description=1e5 日本").out
    Path("again.yaml").write_text(text, encoding="utf-8")
    assert seedbus("explain", "again.yaml", "fields").out == text


DATA = [
    ("participation.clients=5000", r"partition iid: found 5000 clients and 1350 training samples; expected"),
    ("partition={kind: shards, shards_per_client: 900}", r"partition shards: found 8 clients with 900 shards each"),
    (
        "partition={kind: dirichlet, alpha: 0.01, balanced: false}",
        r"partition dirichlet: found no samples for clients .* at alpha 0.01; expected a sample for every client",
    ),
    (
        "task={name: quadratic, dimension: 1000000000000}",
        r"small: found no memory for 3\.64 TiB more \(d = 1,000,000,000,000\); expected algorithm\.revert: light",
    ),
    (
        "task={name: mnist}",
        r"data set mnist: found no environment variable SEEDBUS_DATA, and fetching ylecun/mnist from",
    ),
]


@pytest.mark.parametrize(("setting", "sentence"), DATA)
def test_data_that_cannot_be_had_is_one_sentence_and_exit_3(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str, sentence: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SEEDBUS_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)  # importing it fails, as when the extra is not installed
    digits = "task={name: digits, model: softmax, validation: 0.1}"
    without = "task.validation=0" if "split" in setting else "task.batch_size=1"
    said = seedbus("run", "small.yaml", "--set", digits, "--set", without, "--set", setting)
    assert said.code == Exit.DATA
    assert re.match(rf"seedbus: {sentence}", said.err) and said.err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_folder_of_seedbus_data_that_is_not_there_is_named(seedbus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("here").mkdir()
    monkeypatch.setenv("SEEDBUS_DATA", os.pathsep.join(["here", "gone", "mistyped"]))
    monkeypatch.setenv("SEEDBUS_CACHE", "cache")
    monkeypatch.setitem(sys.modules, "datasets", None)
    absent = r"\(SEEDBUS_DATA names gone and mistyped, and there is no such folder\)"
    said = seedbus("run", "small.yaml", "--set", "task=mnist")
    assert said.code == Exit.DATA
    assert re.search(f"mnist: found no folder here/mnist, gone/mnist, mistyped/mnist {absent}, and fetching", said.err)
    said = seedbus("run", "small.yaml", "--set", "task=femnist", "--set", "partition=natural")
    assert re.search(f"found no folder here/leaf-femnist, .*mistyped/leaf-femnist {absent}; expected", said.err)


def test_a_data_file_that_is_cut_short_is_one_sentence_and_exit_3(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", "data")
    Path("data/mnist").mkdir(parents=True)
    Path("data/mnist/train-images-idx3-ubyte").write_bytes(
        b"\x00\x00\x08\x03\x00\x00\x00\x02\x00\x00\x00\x1c\x00\x00\x00\x1c.."
    )
    Path("data/mnist/train-labels-idx1-ubyte").write_bytes(b"\x00\x00\x08\x01")
    said = seedbus("run", "small.yaml", "--set", "task={name: mnist}")
    file = "data/mnist/train-images-idx3-ubyte"
    assert (said.code, said.err) == (
        Exit.DATA,
        f"seedbus: {file}: found 2 data bytes; expected 1568 for sizes 2×28×28\n",
    )


def test_a_run_that_can_never_end_exits_6(seedbus: Command) -> None:
    for_ever = "network={latency: {distribution: constant, value: 1000000}}"
    said = seedbus("run", "small.yaml", "-q", "--set", for_ever, "--set", "stop.rounds=9")
    assert said.code == Exit.STUCK and "that will never answer" in said.err and said.err.count("\n") == 1


def test_a_replica_that_holds_other_bits_exits_5_and_shows_the_results_all_the_same(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Replicas.advance

    def meddle(self: Replicas, client: int, commits: Any, version: int) -> Replica:
        replica = advance(self, client, commits, version)
        replica.x[0] += version == 2
        return replica

    monkeypatch.setattr(Replicas, "advance", meddle)
    said = seedbus("run", "small.yaml", "-q", "--format", "json")
    assert said.code == Exit.DIVERGED and "diverged" in json.loads(said.out)["refusals"]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_results_that_cannot_be_printed_are_one_sentence_and_exit_4(seedbus: Command) -> None:
    seedbus("run", "small.yaml", "-q", "--out", "run")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "seedbus", "report", "run", "--format", "json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        Exit.FOLDER,
        "seedbus: stdout: it cannot be written (No space left on device)\n",
    )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError("no libllvmlite.so"), "a library cannot be loaded (no libllvmlite.so)"),
        (
            ImportError("a.so: failed to map segment"),
            "there is not enough memory for this run (a.so: failed to map segment)",
        ),
    ],
)
def test_a_library_for_which_there_is_no_memory_is_one_sentence(
    capsys: pytest.CaptureFixture[str], error: Exception, sentence: str
) -> None:
    with pytest.raises(typer.Exit) as ended, cli_errors():
        raise error
    said = capsys.readouterr().err.rstrip()
    assert ended.value.exit_code == Exit.DATA and said == f"seedbus: {sentence}"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_shows_every_option_of_every_command(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # wide enough that no option's name is split across lines
    shown = REFERENCE.partition(f"### seedbus {command}\n")[2].partition("```\n")[2].partition("```")[0]
    said = seedbus(command, "--help")
    assert said.code == Exit.OK and f"Usage: seedbus {command}" in said.out

    def options(text: str) -> set[str]:
        return set(re.findall(r"(?<!\S)-{1,2}[a-z][a-z-]*", text))

    assert options(shown) == options(said.out) >= {"--help"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("within", "options", "priority"),
    [([], [], 10), ([], ["--nice", "0"], 0), (["nice", "-n", "15"], [], 15), ([], ["--parent-pipe"], 0)],
    ids=["by default", "refused", "lower already", "a server's own worker"],
)
def test_a_client_lets_the_owners_other_programs_go_first(within: list[str], options: list[str], priority: int) -> None:
    command = [*within, sys.executable, "-m", "seedbus", "client", "--connect", "tcp://127.0.0.1:9", "--patience", "2"]
    if os.nice(0):
        pytest.skip("the tests have a low priority themselves")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    found = set()
    with subprocess.Popen([*command, *options], **pipes) as client:
        assert client.stdin is not None
        client.stdin.write(b"{}\n")
        client.stdin.flush()
        while client.poll() is None:
            with suppress(ProcessLookupError):
                found.add(os.getpriority(os.PRIO_PROCESS, client.pid))
            time.sleep(0.02)
    assert client.returncode == Exit.PEER and max(found) == priority


def test_a_client_replays_on_as_many_threads_as_it_is_told(seedbus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[int]()
    monkeypatch.setattr("seedbus.scenarios.running.worker.set_threads", told.append)
    for options in ([], ["--threads", "3"]):
        said = seedbus("client", "--connect", "tcp://127.0.0.1:9", "--patience", "0.1", *options)
        assert said.code == Exit.PEER
    assert told == [1, 3]


def test_no_help_is_cut_on_a_terminal_of_80_columns(seedbus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    cut = {name: re.findall(r"\S+…", seedbus(name, "--help").out) for name in COMMANDS}
    assert not any(cut.values()), cut


def test_the_help_and_the_reference_show_every_command_in_the_order_of_use(seedbus: Command) -> None:
    told = re.findall(r"^│ ([a-z-]+)  +[A-Z]", seedbus("--help").out.partition("─ Start ─")[2], re.MULTILINE)
    assert told == COMMANDS == re.findall(r"^### seedbus ([a-z-]+)$", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("typed", FORMER)
def test_a_former_name_is_one_sentence_with_a_command_that_there_is(seedbus: Command, typed: str) -> None:
    command, *option = typed.split()
    said = seedbus(command, "x", *option)
    assert said.code == Exit.USAGE and said.err.startswith(f"seedbus: `seedbus {typed}` is now `seedbus ")
    assert said.err.count("\n") == 1
    for each in FORMER[typed].split("` or `seedbus "):
        now = seedbus(each.split()[0], "--help").out
        assert all(name in now for name in re.findall("--[a-z]+", each))


def test_the_reference_says_what_every_figure_about_messages_is(seedbus: Command) -> None:
    traffic = json.loads(seedbus("run", "small.yaml", "-q", "--format", "json").out)["traffic"]
    text = REFERENCE.partition("### What the results say of messages\n")[2].partition("\n#")[0]
    for keys, table in zip((traffic, traffic["transport"]), text.split("In `transport` are"), strict=True):
        rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
        assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == keys.keys()


def test_the_reference_says_what_every_figure_about_clients_and_rounds_is(seedbus: Command) -> None:
    groups = ["--set", "client_groups.first=[0]"]
    summary = json.loads(seedbus("run", "small.yaml", "-q", "--format", "json", *groups).out)
    summary["groups"] = summary["groups"]["first"]["others"]
    text = REFERENCE.partition("### What the results say of clients and rounds\n")[2].partition("\n#")[0]
    for part in ("participation", "lag", "staleness", "groups", "round_times"):
        table = text.partition(f"| key in `{part}`")[2].partition("\n|---")[2].partition("\n\n")[0]
        rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
        assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == summary[part].keys()


def test_the_reference_lists_every_exit_code() -> None:
    listed = dict(re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", REFERENCE, re.MULTILINE))
    assert listed == {str(int(code)): code.name for code in Exit}


@pytest.mark.slow
def test_the_reference_shows_every_field_as_it_is() -> None:
    assert BEGIN in REFERENCE
    assert inserted(REFERENCE) == REFERENCE, "run `make docs`"


def test_no_arguments_show_the_help(seedbus: Command) -> None:
    assert seedbus() == seedbus("--help")


def test_the_version_is_that_of_the_installed_package(seedbus: Command) -> None:
    assert seedbus("--version") == (Exit.OK, f"seedbus {version('seedbus')}\n", "")


@pytest.mark.slow
def test_bash_completes_commands_and_options_with_the_script_that_the_command_prints(tmp_path: Path) -> None:
    command = tmp_path / "seedbus"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m seedbus "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    code = """
        script=$(seedbus --show-completion) && eval "$script" && complete -p seedbus
        COMP_WORDS=(seedbus re) COMP_CWORD=1; _seedbus_completion seedbus; echo ${COMPREPLY[*]}
        COMP_WORDS=(seedbus run --trans) COMP_CWORD=2; _seedbus_completion seedbus; echo ${COMPREPLY[*]}
    """
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **path})
    assert done.stdout.splitlines() == [
        "complete -o default -F _seedbus_completion seedbus",
        "report",
        "--transport",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"], ["list", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom seedbus.cli.main import main\ntry:\n    main()\nexcept SystemExit as end:\n"
        "    heavy = {'torch', 'numba', 'numpy', 'yaml', 'pandas', 'sklearn'} & sys.modules.keys()\n"
        # Typer itself may load pydantic when it shows the help of a command.
        "    heavy |= {'pydantic'} & sys.modules.keys() if len(sys.argv) == 2 else set()\n"
        "    print(sorted(heavy), file=sys.stderr); raise end"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT / "tests")
    assert (done.returncode, done.stderr.strip()) == (0, "[]")


@pytest.mark.slow
def test_a_run_whose_losses_numpy_takes_loads_nothing_heavy_that_it_does_not_use(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(dump(TINY), encoding="utf-8")
    code = (
        "import sys\nfrom seedbus.cli.main import main\ntry:\n    main()\nexcept SystemExit as end:\n"
        "    heavy = {'torch', 'pandas', 'sklearn', 'pyarrow.compute'}\n"
        "    print(sorted(heavy & sys.modules.keys()), file=sys.stderr); raise end"
    )
    command = [sys.executable, "-c", code, "run", "tiny.yaml", "--out", "run", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_stop_no_run_and_get_no_file(seedbus: Command, tmp_path: Path, closed: str) -> None:
    command = [sys.executable, "-m", "seedbus", "run", "small.yaml", "--out", "run"]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], cwd=tmp_path)
    assert done.returncode == Exit.OK
    assert seedbus("report", "run", "--format", "json").code == Exit.OK


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_below_stderr_stops_a_run_with_its_exit_code(seedbus: Command, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seedbus", "run", "small.yaml", "--out", "run"]
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, cwd=tmp_path, stderr=full).returncode == Exit.FOLDER
    assert seedbus("run", "--resume", "run", "-q").code == Exit.OK


class Interrupting:
    """An object whose `repr` is interrupted by Ctrl-C."""

    def __repr__(self) -> str:
        raise KeyboardInterrupt


def test_ctrl_c_that_comes_while_something_is_loaded_is_one_sentence(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pydantic's core turns the KeyboardInterrupt into an error of its own."""

    def load(*_: object, **__: object) -> None:
        pydantic_core.SchemaValidator({"type": "literal", "expected": [Interrupting()]})

    monkeypatch.setattr(loading, "load", load)
    assert seedbus("run", "small.yaml") == (Exit.INTERRUPTED, "", "seedbus: stopped\n")


IGNORES_CTRL_C = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
"""What starts a process as a background job of a shell script is started."""

_NO_NOHUP = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
NO_NOHUP = [sys.executable, "-c", _NO_NOHUP]
"""What starts a process as in a terminal, also where the tests were started with nohup."""

IN_A_FINALIZER = """
import os, signal, sys, time, types
from seedbus.__main__ import main

class Ending:
    def __del__(self):
        os.kill(os.getpid(), {by})

def command():
    Ending()
    while True:
        time.sleep(1)

sys.modules["seedbus.cli.main"] = types.SimpleNamespace(main=command)
main()
"""


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_that_comes_in_a_finalizer_is_not_lost(by: signal.Signals) -> None:
    """As in a callback of `import`, where Python prints a KeyboardInterrupt and goes on."""
    command = [sys.executable, "-c", IN_A_FINALIZER.format(by=by.value)]
    within = [] if by is signal.SIGINT else IGNORES_CTRL_C
    done = subprocess.run([*within, *NO_NOHUP, *command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (128 + by, "seedbus: stopped\n")


LOGS_ON_A_FULL_DISK = """
import logging, sys, types
from seedbus.__main__ import main

def command():
    logger = logging.getLogger("a library")
    logger.addHandler(logging.FileHandler("/dev/full"))
    logger.error("what it logs")

sys.modules["seedbus.cli.main"] = types.SimpleNamespace(main=command)
main()
"""


def test_a_library_whose_log_is_on_a_full_disk_prints_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", LOGS_ON_A_FULL_DISK], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "within"),
    [(signal.SIGINT, []), (signal.SIGTERM, []), (signal.SIGTERM, IGNORES_CTRL_C), (signal.SIGHUP, NO_NOHUP)],
)
def test_ctrl_c_names_the_folder_and_the_resumed_run_ends_as_if_it_had_not_stopped(
    seedbus: Command, tmp_path: Path, by: signal.Signals, within: list[str]
) -> None:
    what = scenario(stop={"rounds": 400}, verify=False)
    Path("long.yaml").write_text(dump(what.resolved()), encoding="utf-8")
    process = process_of("run", "long.yaml", within=within, cwd=tmp_path)
    assert process.stderr is not None
    line = ""
    while not line.startswith("round 10/"):
        line = process.stderr.readline()
        assert line
    process.send_signal(by)
    out, err = process.communicate()
    assert process.returncode in (128 + by, -signal.SIGINT) and not out
    assert err.splitlines()[-1] == (
        "seedbus: stopped; every closed round is kept: go on with `seedbus run --resume runs/small-1`"
    )
    assert "finished" in seedbus("report", "runs/small-1").err
    resumed = json.loads(seedbus("run", "--resume", "runs/small-1", "-q", "--format", "json").out)
    whole = json.loads(seedbus("run", "long.yaml", "-q", "--format", "json").out)
    assert [resumed[key] for key in ("digest", "ledger_hash", "metrics")] == [
        whole[key] for key in ("digest", "ledger_hash", "metrics")
    ]
    assert (resumed["was_resumed"], whole["was_resumed"]) == (True, False)
    assert "s real since it was resumed" in seedbus("report", "runs/small-1").out
    lines = [Path(f"runs/small-{number}/metrics.jsonl").read_text(encoding="utf-8") for number in (1, 2)]
    assert lines[0] == lines[1] and os.path.exists("runs/small-1/results.json")


# What is typed, and what goes on with the run: all options but those that the run's folder has.
GOING_ON = {
    "run small.yaml --set stop.rounds=3 --out a": "run --resume a",
    "run small.yaml --workers=2 --patience 300 --join-within 12.5 --plugin 'my own/signs.py' -q --out a": (
        "run --patience 300 --join-within 12.5 --plugin 'my own/signs.py' --quiet --workers 2 --resume a"
    ),
    "run small.yaml --transport ipc --log messages --format json --device cpu --out 'a b'": (
        "run --device cpu --log messages --format json --transport ipc --resume 'a b'"
    ),
    "run small.yaml --launcher slurm --workers 2 --launch nodes=2 --launch worker_cpus=2 --out a": (
        "run --workers 2 --launcher slurm --launch nodes=2 --launch worker_cpus=2 --resume a"
    ),
    "server small.yaml --bind tcp://localhost:5555 --keys k --workers 3 --answer-within 90 --out a": (
        "server --bind tcp://localhost:5555 --workers 3 --answer-within 90 --keys k --resume a"
    ),
    "server small.yaml --bind 'tcp://*:5555' --insecure --patience 86400 --out a": (
        "server --bind 'tcp://*:5555' --insecure --patience 86400 --resume a"
    ),
}


@pytest.mark.parametrize("typed", GOING_ON)
def test_a_stopped_run_names_the_whole_command_that_goes_on_with_it(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("seedbus.scenarios.running.run.execute", stop)
    monkeypatch.setattr("seedbus.scenarios.launchers.slurm.Slurm.check", lambda *_: None)
    Path("my own").mkdir()
    Path("my own/signs.py").write_text(SIGNS.read_text(encoding="utf-8"), encoding="utf-8")
    Path("small.yaml").write_text(dump(scenario().resolved()), encoding="utf-8")
    expected = f"seedbus {GOING_ON[typed]}"
    for command in (typed, expected.removeprefix("seedbus ")):  # and the command itself is whole, too
        forget()
        told = seedbus(*shlex.split(command))
        assert told.err.splitlines()[-1] == f"seedbus: stopped; every closed round is kept: go on with `{expected}`"
    forget()
