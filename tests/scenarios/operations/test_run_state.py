"""`seedbus runs` and `seedbus runs RUN`: the state of each run, from files that may be damaged or somebody else's."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Command
from processes import kill, seedbus, wait_for
from warm_command import warm
from worlds import go, lossy, reopened, scenario

from seedbus.agents.journal.holder import holder
from seedbus.agents.journal.records import Glance
from seedbus.bus import read_ledger
from seedbus.bus.files import check_file
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.operations.live_view import frame
from seedbus.scenarios.operations.log_follower import LogFollower
from seedbus.scenarios.operations.run_state import RunState, State, runs_in, state_of
from seedbus.scenarios.operations.slowest_clients import slowest_clients
from seedbus.scenarios.reporting.terminal import console
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    run(lossy(), folder)
    return folder


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    """A folder with a run in each state but running."""
    folder = tmp_path / "runs"
    for name in ("finished", "stopped", "diverged", "cut", "flipped", "nonsense"):
        shutil.copytree(finished, folder / name)
    reopened(folder / "stopped", {})
    results = json.loads((folder / "diverged" / "results.json").read_text())
    (folder / "diverged" / "results.json").write_text(json.dumps(results | {"refusals": {"diverged": {"3": 1}}}))
    for name in ("cut", "flipped"):
        (folder / name / "results.json").unlink()
    os.truncate(folder / "cut" / "journal.sqlite", 8192)
    with open(folder / "flipped" / "journal.sqlite", "r+b") as journal:
        content = journal.read().replace(b'"dimension": 300', b'"dimension": 301')
        journal.seek(0)
        journal.write(content)
    (folder / "nonsense" / "results.json").write_text("[]")
    (folder / "no-run").mkdir()
    return folder


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """The folder of a run that goes on, with two workers."""
    (tmp_path / "long.yaml").write_text(dump(scenario(stop={"rounds": 10**6}, verify=False).resolved()))
    process = seedbus("run", "long.yaml", "--out", "runs/running", "--workers", "2", "-q", cwd=tmp_path)
    folder = tmp_path / "runs" / "running"
    log = LogFollower(folder)

    def has_begun() -> bool:
        if folder.exists():
            log.read()
        return len(log.rounds) > 30

    try:
        wait_for(has_begun)
        yield folder
    finally:
        kill(process.pid, 9)
        process.communicate()


@pytest.mark.slow
def test_each_run_has_its_state(runs: Path, running: Path) -> None:
    states = {each.folder.name: each.state.value for each in runs_in(running.parent)}
    assert states == {
        "running": "running", "finished": "finished", "stopped": "stopped", "diverged": "diverged",
        "cut": "damaged", "flipped": "damaged", "nonsense": "damaged",
    }  # fmt: skip


def test_the_list_as_json_has_the_figures_of_the_results(runs: Path, seedbus: Command) -> None:
    listed = {
        Path(each["run"]).name: each for each in json.loads(seedbus("runs", runs, "--format", "json").out)["runs"]
    }
    summary = json.loads((runs / "finished" / "results.json").read_text())
    for name in ("finished", "stopped"):
        each = listed[name]
        assert (each["rounds"], each["version"]) == (summary["rounds"], summary["version"])
        assert (each["scenario"], each["algorithm"]) == ("small", "decomfl")
        assert each["bytes"] == summary["traffic"]["bytes"] and each["pid"] is None
        assert each["metrics"]["loss"] == summary["metrics"]["loss"]
    assert listed["stopped"]["last_round"] == 20 and "facts do not verify" in listed["flipped"]["what"]


def test_a_run_that_its_clock_ends_shows_how_many_rounds_that_allows(tmp_path: Path, seedbus: Command) -> None:
    done = go(tmp_path / "timed", scenario(stop={"rounds": 10**6, "simulated_s": 5})).summary["rounds"]
    reopened(tmp_path / "timed", {})
    assert f" {done} of {done}, version" in seedbus("runs", tmp_path / "timed").out
    assert f" {done}/{done} " in seedbus("runs", tmp_path).out
    (listed,) = json.loads(seedbus("runs", tmp_path, "--format", "json").out)["runs"]
    assert listed["last_round"] == 10**6


def test_the_list_names_each_damaged_run_on_stderr(runs: Path, seedbus: Command) -> None:
    listed = seedbus("runs", runs)
    assert listed.code == Exit.OK and len(listed.out.splitlines()) == 7
    assert listed.err.count("\n") == 3 and f"{runs / 'flipped'}: its facts do not verify" in listed.err
    assert "no-run" not in listed.out


def test_a_run_of_somebody_else_that_is_locked_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seedbus: Command
) -> None:
    """The tests may be those of root, for whom no folder is locked."""

    def locking(look: Callable[[Path], bool]) -> Callable[[Path], bool]:
        def looked(path: Path) -> bool:
            if path.parent.name == "locked":
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return look(path)

        return looked

    go(tmp_path / "open", lossy(stop={"rounds": 1}))
    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(Path, "is_file", locking(Path.is_file))
    monkeypatch.setattr("seedbus.scenarios.operations.run_state.check_file", locking(check_file))
    listed = seedbus("runs", tmp_path)
    assert listed.code == Exit.OK and listed.err == f"{tmp_path / 'locked'}: Permission denied\n"
    first, second = (line.split() for line in listed.out.splitlines()[1:])
    assert first[:2] == ["open", "finished"] and second == ["locked", "damaged", "0", "0", "B"]


def test_a_folder_without_runs_and_no_folder_are_one_sentence(seedbus: Command, tmp_path: Path) -> None:
    assert seedbus("runs", tmp_path).err == f"there are no runs in {tmp_path}\n"
    none = seedbus("runs", "nowhere")
    assert none.code == Exit.FOLDER and none.err.startswith("seedbus: nowhere: it cannot be read") and not none.out


def test_a_folder_that_the_system_does_not_look_into_is_no_run(seedbus: Command) -> None:
    """Its name is too long; one of another user, among one's own runs, is passed over for the same reason."""
    unseen = "x" * 300
    listed, stopped = seedbus("runs", unseen), seedbus("runs", unseen, "--stop")
    assert (listed.code, stopped.code) == (Exit.FOLDER, Exit.FOLDER)
    assert listed.err == f"seedbus: {unseen}: it cannot be read (File name too long); expected a folder of runs\n"
    assert stopped.err == f"seedbus: {unseen}: there is no run here (no journal.sqlite)\n"


@pytest.mark.slow
def test_a_frame_of_a_running_run_shows_who_is_there_and_disturbs_nothing(running: Path, seedbus: Command) -> None:
    process = holder(running)
    shown = seedbus("runs", running)
    assert shown.code == Exit.OK and process is not None and f"running, process {process.pid}" in shown.out
    assert sorted(re.findall(r"process [12] +│ (clients \d…\d)", shown.out)) == ["clients 0…3", "clients 4…7"]
    assert re.search(r"[1-9][0-9.]* rounds/s", shown.out) and re.search(
        r"lag +│ median \d+, p95 \d+, max \d+", shown.out
    )
    assert re.search(r"slowest +│ client \d: \d+\.\d\d s in round \d+", shown.out)
    assert holder(running) == process
    rounds = state_of(running).rounds
    wait_for(lambda: state_of(running).rounds > rounds)


def test_a_frame_of_each_other_run_shows_its_end(runs: Path, seedbus: Command) -> None:
    for name, words in (
        ("finished", "all 20 rounds are done"), ("diverged", "diverged 1"), ("stopped", "or as it was started"),
        ("cut", "damage"), ("flipped", "facts do not verify"), ("nonsense", "damage"),
    ):  # fmt: skip
        shown = seedbus("runs", runs / name)
        assert shown.code == Exit.OK and words in shown.out, name
    assert "nowhere: it cannot be read (No such file or directory)" in seedbus("runs", "nowhere").err


def test_the_slowest_clients_are_those_of_the_ledger(finished: Path) -> None:
    columns = read_ledger(finished / "messages")
    rows = [
        dict(zip(columns, row, strict=True)) for row in zip(*(each.tolist() for each in columns.values()), strict=True)
    ]
    asked = {(row["recipient"], row["round"]): row["sent_ns"] for row in rows if row["kind"] == 6}
    last = {}
    for row in rows:
        if row["kind"] == 7 and row["fate"] == 0:
            last[row["sender"]] = (row["arrived_ns"] - asked[row["sender"], row["round"]]) / 1e9
    found = slowest_clients(finished / "messages", None, 3)
    assert [each.seconds for each in found] == sorted(last.values(), reverse=True)[:3]
    assert all(last[each.client] == each.seconds for each in found)


def test_a_copy_of_a_report_does_not_make_its_client_slower(tmp_path: Path) -> None:
    copies = {"fault": "duplicate", "kind": "report", "copies": 3}
    results = run(scenario(faults=[copies], stop={"rounds": 6}), tmp_path / "run")
    rows = results.messages.set_index(["round", "sender"]).sort_values("arrived_ns", kind="stable")
    reports = rows[(rows["kind"] == "REPORT") & (rows["fate"] == "DELIVERED")]
    sent_ns = results.messages.query("kind == 'PLAN'").set_index(["round", "recipient"])["sent_ns"]
    took_s = (reports["arrived_ns"].groupby(level=[0, 1]).min() - sent_ns.rename_axis(["round", "sender"])) / 1e9
    expected = took_s.groupby("sender").last()
    assert reports.index.duplicated().any()
    found = {each.client: each.seconds for each in slowest_clients(tmp_path / "run" / "messages", None, 8)}
    assert found == pytest.approx(expected.to_dict())


def test_the_time_of_a_report_that_a_crash_lost_is_not_taken_from_the_plan_after_it(tmp_path: Path) -> None:
    crash = {"fault": "server-crash", "at_round": 3, "phase": "gathering", "down_s": 2.0}
    results = run(scenario(faults=[crash], stop={"rounds": 4}), tmp_path / "run")
    reports = results.messages.query("kind == 'REPORT' and round == 3 and fate == 'DELIVERED'")
    assert reports["sender"].duplicated().any(), "one came before the crash, and again after it"
    found = slowest_clients(tmp_path / "run" / "messages", None, 8)
    assert all(0 < each.seconds < 2 for each in found), found


def test_every_line_of_the_log_names_its_run_and_round(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "log.jsonl").read_text().splitlines()]
    assert len({line["run"] for line in lines}) == 1 and all(isinstance(line["round"], int) for line in lines)
    refused = [line for line in lines if line["event"] == "refused"]
    assert refused and all({"client", "reason"} <= line.keys() for line in refused)
    assert lines[0]["event"] == "opened" and lines[0]["pid"] == os.getpid()


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe", b"[" * 100_000, b'{"event": "round", "round": "x", "bytes": 1e999, "timestamp": 7}', b"7",
        b'{"event": "joined", "host": -3, "clients": "\\u001b[2J\\u202egone"}', b'{"event": "metrics", "loss": "x"}',
        b'{"event": "round", "round": NaN, "timestamp": "9999-99-99"}', b"x" * 200_000,
        b'{"event": "round", "bytes": 1%s}' % (b"0" * 400), b'{"event": "metrics", "loss": -1%s}' % (b"0" * 400),
    ],
)  # fmt: skip
def test_a_foreign_log_prints_no_escape_and_no_traceback(runs: Path, seedbus: Command, line: bytes) -> None:
    log = runs / "stopped" / "log.jsonl"
    log.write_bytes(log.read_bytes() + line + b"\n" + line)
    for arguments in (("runs", runs / "stopped"), ("runs", runs)):
        shown = seedbus(*arguments)
        assert shown.code == Exit.OK and "\x1b" not in shown.out + shown.err and "\u202e" not in shown.out
        assert "Traceback" not in shown.err


def test_a_frame_of_a_run_that_waits_says_how_many_clients_have_no_process(finished: Path, tmp_path: Path) -> None:
    events = [("joined", -2, 50), ("joined", -3, 30), ("joined", -4, 0), ("gone", -3, 20)]
    lines = [json.dumps({"event": event, "host": host, "missing": missing}) for event, host, missing in events]
    (tmp_path / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))
    log = LogFollower(tmp_path)
    log.read()
    waiting = RunState(tmp_path, State.RUNNING, glance=Glance(0, 0, {}, 0, b"", None))
    out = io.StringIO()
    console(file=out, width=200).print(frame(waiting, log))
    assert "20 clients without a process" in out.getvalue() and "0 in the run" not in out.getvalue()


@pytest.mark.parametrize("name", ["log.jsonl", "running", "results.json", "journal.sqlite"])
def test_links_and_pipes_in_a_foreign_folder_are_not_followed(runs: Path, seedbus: Command, name: str) -> None:
    for make in (lambda path: path.symlink_to("/dev/zero"), os.mkfifo):
        path = runs / "stopped" / name
        path.unlink(missing_ok=True)
        make(path)
        shown = seedbus("runs", runs / "stopped")
        assert shown.code in (Exit.OK, Exit.FOLDER) and ("is a symbolic link" in shown.out + shown.err or
            "is a pipe" in shown.out + shown.err or "there are no runs in" in shown.err)  # fmt: skip
        assert seedbus("runs", runs).code == Exit.OK


@pytest.mark.slow
def test_a_narrow_terminal_no_colours_and_a_closed_pipe_behave(runs: Path) -> None:
    command = [str(warm() / "seedbus")]
    narrow = subprocess.run(
        [*command, "runs", runs / "finished"],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "30"},
    )
    assert narrow.returncode == 0 and not narrow.stderr
    plain = subprocess.run(
        [*command, "runs", runs], capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1", "FORCE_COLOR": "1"}
    )
    assert plain.returncode == 0 and not re.search(r"\x1b\[3\dm", plain.stdout)
    for arguments in (("runs", str(runs / "finished")), ("runs", str(runs)), ("runs", str(runs), "--format", "json")):
        with subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as piped:
            assert piped.stdout is not None and piped.stderr is not None
            piped.stdout.close()
            assert "Traceback" not in piped.stderr.read()
