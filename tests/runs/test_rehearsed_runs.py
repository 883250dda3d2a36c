"""A run whose reports counted by chance of time, and its rehearsal, which takes from its journal which ones did."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hidden_folders import free_port
from owners import own_scenario, own_tables
from processes import HANGS_S, kill, seedbus, wait_for
from worlds import DECOMFL, lossy, scenario

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.scenarios.errors import Differs, Exit, ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement

SLOW = {"evaluation": {"distribution": "lognormal", "median": 0.2, "sigma": 1.5}}
LATE = {"clients": 8, "cohort": 4, "deadline_s": 0.1, "late": {"discount": 0.5}}
WHOLE = DECOMFL | {"momentum": 0.0, "arithmetic": "integer", "precision": "int32"}
CHURN = {
    "fault": "churn",
    "stays": {"distribution": "exponential", "mean": 8},
    "away": {"distribution": "exponential", "mean": 2},
}
DROP = {"fault": "drop", "probability": 0.1}
MASKED = {"algorithm": WHOLE, "participation": {"clients": 8, "cohort": 6, "quorum": 2, "deadline_s": 1.0}}
STREAM = {"algorithm": WHOLE, "participation": {"mode": "stream", "clients": 8, "cohort": 6, "deadline_s": 4}}
CASES: dict[str, Scenario] = {
    "deadline": lossy(compute=SLOW),
    "late": scenario(participation=LATE),
    "buffer": scenario(participation={"clients": 8, "cohort": 6, "buffer": 2, "late": {}}, compute=SLOW),
    "stream": scenario(**STREAM, faults=[CHURN, DROP], compute=SLOW, stop={"rounds": 60}),
    "over-selected": scenario(participation={"clients": 8, "cohort": 3, "over_selection": 2.0}),
    "crashed": lossy(faults=[CHURN, {"fault": "server-crash", "at_round": 3}]),
    "lying": lossy(faults=[{"fault": "byzantine", "clients": [1], "attack": "sign-flip"}, DROP]),
    "secure": scenario(**MASKED, secure_aggregation={}, compute=SLOW),
    "dense": scenario(algorithm={"name": "fedavg", "learning_rate": 0.1}, participation=LATE),
}


def rounds_of(folder: Path) -> list[tuple[Any, ...]]:
    """Return what decides the model of each round of a run: whom it asked, what counted, and its commit."""
    with closing(Journal.open(folder, for_writing=False)) as journal:
        return [(each.cohort, each.reported, each.record.late, each.commit) for each in journal.rounds()]


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def measured(folder: Path) -> list[tuple[Any, ...]]:
    return [tuple(each[name] for name in ("version", "answered", "samples", "loss")) for each in lines_of(folder)]


def owned(folder: Path, owners: Path, *, as_run: Path | None = None, **more: Any) -> Results:
    placement = Placement("memory", own=str(owners / "*" / "*.csv"))
    return run(load(own_scenario(**more)), folder, placement=placement, page=False, as_run=as_run)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_rehearsal_commits_what_counted_and_ends_with_the_digest(case: str, tmp_path: Path) -> None:
    if case == "secure":
        pytest.importorskip("cryptography")
    there = run(CASES[case], tmp_path / "there", page=False)
    here = run(CASES[case], tmp_path / "here", page=False, as_run=tmp_path / "there")
    assert here.summary["digest"] == there.summary["digest"]
    rounds = rounds_of(tmp_path / "there")
    assert rounds_of(tmp_path / "here") == rounds
    assert any(reported != cohort for cohort, reported, *_ in rounds), "time or a fault decided something"


def test_clients_that_did_not_measure_are_not_asked_to_in_the_rehearsal(tmp_path: Path) -> None:
    own_tables(tmp_path / "owners")
    faults = [{"fault": "drop", "probability": 0.3}]
    more: dict[str, Any] = {"faults": faults, "participation": {"clients": 3, "cohort": 3, "deadline_s": 5}}
    there = owned(tmp_path / "there", tmp_path / "owners", **more)
    here = owned(tmp_path / "here", tmp_path / "owners", as_run=tmp_path / "there", **more)
    assert here.summary["digest"] == there.summary["digest"]
    assert min(line["answered"] for line in lines_of(tmp_path / "there")) < 3
    assert measured(tmp_path / "here") == measured(tmp_path / "there")


def test_other_data_are_told_with_the_round(tmp_path: Path) -> None:
    tables, there = own_tables(tmp_path / "owners"), tmp_path / "there"
    digest = owned(there, tmp_path / "owners").summary["digest"]
    assert owned(tmp_path / "same", tmp_path / "owners", as_run=there).summary["digest"] == digest
    lines = tables[1].read_text().splitlines()
    tables[1].write_text("\n".join(line.replace("female", "male") for line in lines) + "\n")
    with pytest.raises(Differs, match=r"differs from it: round 0 has another commit: a report of clients 0, 1, 2 is"):
        owned(tmp_path / "here", tmp_path / "owners", as_run=there)


def test_a_run_that_was_resumed_for_more_rounds_is_rehearsed_as_a_whole(tmp_path: Path) -> None:
    own_tables(tmp_path / "owners")
    there, placement = tmp_path / "there", Placement("memory", own=str(tmp_path / "owners" / "*" / "*.csv"))
    owned(there, tmp_path / "owners")
    with pytest.raises(RunFolderError, match=r"another scenario's run: stop\.rounds is 5 there and 8 here"):
        owned(tmp_path / "here", tmp_path / "owners", as_run=there, stop={"rounds": 8})
    longer = run(load(own_scenario(stop={"rounds": 8})), there, resume=True, placement=placement, page=False)
    with pytest.raises(RunFolderError, match=r"another scenario's run: stop\.rounds is 8 there and 5 here"):
        owned(tmp_path / "here", tmp_path / "owners", as_run=there)
    assert owned(tmp_path / "here", tmp_path / "owners", as_run=there, stop={"rounds": 8}).digest == longer.digest
    assert measured(tmp_path / "here") == measured(there)


def test_what_cannot_be_rehearsed_is_refused_in_a_sentence(tmp_path: Path) -> None:
    what, there, other = scenario(), tmp_path / "there", tmp_path / "other"
    run(what, there, page=False)
    with pytest.raises(RunFolderError, match=r"another scenario's run: algorithm\.learning_rate is 0\.01 there and"):
        run(scenario(algorithm=DECOMFL | {"learning_rate": 0.02}), other, as_run=there)
    with pytest.raises(RunFolderError, match="there is no run here"):
        run(what, other, as_run=tmp_path / "nowhere")
    with pytest.raises(ScenarioError, match="a rehearsal is not resumed; expected a new one, without --resume"):
        run(what, there, resume=True, as_run=there)
    with pytest.raises(ScenarioError, match="nodes without a server decide nothing"):
        run("gossip-digits", other, as_run=there)
    content = bytearray((there / FILE).read_bytes())
    for place in range(8192, len(content) - 4096, 4096):
        content[place + 3000 : place + 3010] = b"0123456789"
    (there / FILE).write_bytes(content)
    with pytest.raises(JournalDamaged) as damaged:
        run(what, other, as_run=there)
    assert "\n" not in str(damaged.value) and str(there) in str(damaged.value)
    assert not other.exists(), "nothing is begun"


@pytest.mark.slow
def test_owners_that_are_late_and_killed_in_real_time_are_rehearsed_to_the_same_digest(tmp_path: Path) -> None:
    """One process stops for some rounds, and goes on; another is killed, and started again. Then the server is stopped.

    Nobody knows when the process that was killed has joined again: so the run has more rounds than it needs.
    """
    tables = own_tables(tmp_path / "owners")
    participation = {"clients": 3, "cohort": 3, "deadline_s": 0.5, "every_s": 0.1}
    fields = own_scenario(clock="wall", participation=participation, stop={"rounds": 10_000})
    (tmp_path / "own.yaml").write_text(dump(fields))
    address = f"tcp://127.0.0.1:{free_port()}"
    server = seedbus("server", "own.yaml", "--bind", address, "--out", "run", "--patience", HANGS_S, cwd=tmp_path)

    def starts(number: int) -> subprocess.Popen[str]:
        mine = ("--clients", f"{number}-{number}", "--own", tables[number], "--patience", HANGS_S)
        started: subprocess.Popen[str] = seedbus("client", "--connect", address, *mine, cwd=tmp_path)
        return started

    def logged(event: str) -> int:
        log = tmp_path / "run" / "log.jsonl"
        return log.read_text().count(f'"event": "{event}"') if log.exists() else 0

    def waits_for_rounds(more: int) -> None:
        until = logged("round") + more
        wait_for(lambda: logged("round") >= until)

    clients = [starts(number) for number in range(3)]
    wait_for(lambda: logged("joined") >= 3)
    waits_for_rounds(3)
    kill(clients[1].pid, signal.SIGSTOP)
    waits_for_rounds(3)
    kill(clients[1].pid, signal.SIGCONT)
    kill(clients[2].pid, signal.SIGKILL)
    clients[2].communicate()
    clients[2] = starts(2)
    wait_for(lambda: logged("joined") >= 4)
    waits_for_rounds(3)
    server.send_signal(signal.SIGINT)
    _, told = server.communicate(timeout=HANGS_S)
    for client in clients:
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=HANGS_S)
    assert server.returncode == Exit.INTERRUPTED, told
    decided = rounds_of(tmp_path / "run")
    assert {len(reported) for _, reported, *_ in decided} >= {2, 3}
    command = ("run", "own.yaml", "--own", "owners/*/*.csv", "--as", "run", "--out")
    same = seedbus(*command, "here", cwd=tmp_path)
    _, told = same.communicate(timeout=HANGS_S)
    assert same.returncode == Exit.OK, told
    here = json.loads((tmp_path / "here" / "results.json").read_text())
    assert here["digest"] == replay(tmp_path / "run").digest and rounds_of(tmp_path / "here") == decided
    answers = {line["version"]: line for line in map(dict, lines_of(tmp_path / "here"))}
    for line in lines_of(tmp_path / "run"):
        assert {
            name: answers[line["version"]][name] for name in ("answered", "samples", "loss")
        }.items() <= line.items()
    resumed = seedbus("run", "--resume", "here", "--set", "stop.rounds=20000", "--own", "owners/*/*.csv", cwd=tmp_path)
    _, told = resumed.communicate(timeout=HANGS_S)
    assert resumed.returncode == Exit.FOLDER and "begun with rehearses" in told, told
    tables[0].write_text("\n".join(tables[0].read_text().splitlines()[:-3]) + "\n")
    other = seedbus(*command, "other", cwd=tmp_path)
    _, told = other.communicate(timeout=HANGS_S)
    assert other.returncode == Exit.DIFFERS and "other is a rehearsal of run, and differs from it: round 0" in told
