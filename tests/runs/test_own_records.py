"""What an owner keeps of each round: a journal that claims other terms, rounds or models is named, and ε is hers."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from hidden_folders import free_port
from owners import own_scenario
from processes import HANGS_S
from processes import seedbus as seedbus_process
from worlds import scenario

from seedbus.agents.journal.journal import Journal
from seedbus.agents.privacy.accountant import gaussian_epsilon
from seedbus.scenarios.consent.own_record import FILE, Recorder, read_record
from seedbus.scenarios.consent.terms import different
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.running.run import run
from seedbus.scenarios.running.verify_own import verify_own
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.explain.noise import spent

pytest.importorskip("dp_accounting", reason="privacy needs dp-accounting: pip install 'seedbus[privacy]'")
pytestmark = pytest.mark.slow

WHOLE = {"name": "decomfl", "arithmetic": "integer", "precision": "int32"}
CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "more noise": (
        {"privacy": {"clip": 100_000, "noise_multiplier": 9.0}},
        "terms: privacy.noise_multiplier is 9.0 in the journal, and this client joined with 3.0",
    ),
    "fewer rounds": ({"stop": {"rounds": 4}}, "the journal ends after 4 rounds"),
    "another cohort": ({"seed": 5}, ", which the journal's cohort has not"),
    "no commit": (
        {
            "participation": {"clients": 4, "cohort": 3, "quorum": 2, "deadline_s": 2.0},
            "faults": [{"fault": "drop", "kind": "report", "probability": 0.6}],
        },
        " work at version ",
    ),
    "another model": ({"algorithm": WHOLE | {"learning_rate": 0.002}}, "the journal's commits make"),
}


def what(**more: Any) -> Scenario:
    crowd = {"clients": 4, "cohort": 3, "quorum": 2}
    noise = {"clip": 100_000, "noise_multiplier": 3.0}
    base: dict[str, Any] = {"algorithm": WHOLE, "participation": crowd, "privacy": noise, "stop": {"rounds": 8}}
    return scenario(**(base | more))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of a run over sockets, and that of the owner of its clients 0 and 1."""
    folder, port = tmp_path_factory.mktemp("federation"), free_port()
    (folder / "what.yaml").write_text(dump(what().resolved()))
    ends = ("--patience", HANGS_S)
    bound = ("--bind", f"tcp://127.0.0.1:{port}", "--out", "run", *ends)
    asks = ("client", "--connect", f"tcp://127.0.0.1:{port}", *ends)
    processes = [
        seedbus_process("server", "what.yaml", *bound, cwd=folder),
        seedbus_process(*asks, "--clients", "0-1", "--out", "owner", cwd=folder),
        seedbus_process(*asks, "--clients", "2-3", cwd=folder),
    ]
    said = [process.communicate(timeout=HANGS_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    return folder / "run", folder / "owner"


def claimed(folder: Path, actual: Scenario, says: Scenario) -> Path:
    """Return the folder of a run whose sound journal says that it had another scenario."""
    run(actual, folder, page=False)
    with closing(Journal.open(folder)) as journal:
        journal.checkpoint()
        journal.reopen({"scenario": json.dumps(says.resolved())})
    return folder


def test_an_owner_computes_epsilon_from_her_own_record_and_finds_the_journal_true(
    federation: tuple[Path, Path], seedbus: Command
) -> None:
    folder, owner = federation
    done = seedbus("verify", folder, owner)
    assert done.code == Exit.OK, done.out + done.err
    lines = [json.loads(line) for line in (owner / FILE).read_text().splitlines()]
    answers = [line for line in lines if "answer" in line]
    for client in (0, 1):
        reports = sum(each["client"] == client and each["answer"] == "report" for each in answers)
        assert 0 < reports <= 8
        told = f"client {client}: {reports} reports left this process, of which {reports} are in commits of the journal"
        assert told in done.out
        assert f"client {client}: ε = {gaussian_epsilon(3.0 / reports**0.5, 1e-5):.6g} for δ = 1e-05" in done.out
    assert f"the run has spent ε = {spent(folder)['epsilon']:.6g}" in done.out and "not checked: its" not in done.out
    alone = seedbus("verify", owner)
    own = [line for line in alone.out.splitlines() if "ε = " in line]
    assert alone.code == Exit.OK and len(own) == 2 and all(line in done.out for line in own)


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_journal_that_claims_something_else_is_named(
    claim: str, federation: tuple[Path, Path], tmp_path: Path, seedbus: Command
) -> None:
    _, owner = federation
    more, sentence = CLAIMS[claim]
    scenarios = [what(**more), what()]
    false = claimed(tmp_path / "run", *(reversed(scenarios) if claim == "more noise" else scenarios))
    done = seedbus("verify", false, owner)
    assert done.code == Exit.DIFFERS and sentence in done.out, done.out + done.err
    assert len(verify_own(owner, false).differences) <= 20


def test_a_record_that_is_damaged_is_named_and_a_line_that_was_cut_off_is_left_out(
    federation: tuple[Path, Path], tmp_path: Path, seedbus: Command
) -> None:
    folder, owner = federation
    shutil.copytree(owner, tmp_path / "owner")
    path = tmp_path / "owner" / FILE
    with path.open("a") as file:
        file.write('{"client": 0, "rou')
    assert seedbus("verify", folder, tmp_path / "owner").code == Exit.OK
    path.write_text(path.read_text() + "\n{}\n")
    done = seedbus("verify", folder, tmp_path / "owner")
    assert done.code == Exit.FOLDER and "is damaged" in done.err and "Traceback" not in done.err
    assert "expected the folder of `seedbus client --out`" in seedbus("verify", folder, tmp_path).err


def test_the_name_of_a_public_test_set_is_no_term_and_a_rate_is_one() -> None:
    """The client has read it as null, for it looks at none."""
    joined = load(own_scenario(evaluation={"every": 2}))
    public = joined.model_copy(update={"task": joined.task.model_copy(update={"test_file": "/public.csv"})})
    assert different(public, joined) == []
    faster = load(own_scenario(evaluation={"every": 2}, algorithm={"name": "decomfl", "learning_rate": 0.5}))
    assert ("algorithm.learning_rate", "0.5", "0.05") in different(faster, joined)


def test_noise_of_the_operating_system_is_not_rehearsed(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"noise comes from the operating system .*, so no rehearsal has its bits"):
        run(what(clock="wall"), as_run=tmp_path)


def test_a_line_of_a_killed_process_is_cut_off_by_the_next_one(tmp_path: Path) -> None:
    """Its answer did not leave, and what the next process writes is not appended to it."""
    Recorder(tmp_path, what())
    with (tmp_path / FILE).open("a", encoding="utf-8") as file:
        file.write('{"client": 0, "rou')
    assert len(read_record(tmp_path).scenarios) == 1
    Recorder(tmp_path, what())
    found = read_record(tmp_path)
    assert (len(found.scenarios), found.answers) == (2, [])
