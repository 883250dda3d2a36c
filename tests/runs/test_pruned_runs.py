"""A run whose journal was pruned goes on as if it had not been, and says what it can no longer show."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest
from commands import Command
from worlds import DECOMFL, HISO, holds, lossy, outcome, scenario

from seedbus.agents.errors import AgentError, JournalDamaged, RunFolderError
from seedbus.agents.journal.digests import digest
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.scenarios.consent.own_record import REPORT, Answer, OwnRecord
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.as_run import OtherRun
from seedbus.scenarios.running.prune import Pruned, prune
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.running.verify import verify
from seedbus.scenarios.running.verify_own import OwnView, verify_own
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.analysis.analyse import analyse

KSEED = {"name": "fedkseed", "pool": 50, "perturbations": 3, "learning_rate": 0.01}
LAG = {"snapshot_after_commits": 6}


def rounds(count: int) -> dict[str, int]:
    return {"rounds": count}


def pruned(folder: Path) -> Pruned:
    found = prune(folder)
    assert found is not None
    return found


def base_of(folder: Path) -> Any:
    with closing(Journal.open(folder, for_writing=False)) as journal:
        return journal.base()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A run of 20 rounds of HiSo."""
    return run(scenario(algorithm=HISO), tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def smaller(whole: Results, tmp_path: Path) -> Path:
    """A copy of it whose journal is pruned."""
    folder = tmp_path / "smaller"
    shutil.copytree(whole.folder, folder)
    pruned(folder)
    return folder


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("make", "changes", "placements"),
    [
        (scenario, {"algorithm": HISO}, [Placement()] * 2),
        (lossy, {"algorithm": DECOMFL, "lag": LAG}, [Placement()] * 2),
        (scenario, {"algorithm": DECOMFL}, [Placement("tcp", 2), Placement("inproc")]),
        (lossy, {"algorithm": HISO, "lag": LAG}, [Placement("ipc", 3), Placement("tcp", 2)]),
        (scenario, {"algorithm": HISO, "lag": {**LAG, "source": "peer"}}, [Placement()] * 2),
        (lossy, {"algorithm": KSEED}, [Placement()] * 2),
        (scenario, {"algorithm": DECOMFL | {"momentum": 0.0, "arithmetic": "integer"}}, [Placement()] * 2),
    ],
)
def test_a_run_that_is_pruned_twice_ends_like_one_that_never_was(
    tmp_path: Path, make: Callable[..., Scenario], changes: dict[str, Any], placements: Sequence[Placement]
) -> None:
    expected = outcome(run(make(**changes, stop=rounds(45)), tmp_path / "whole"))
    folder, found = tmp_path / "pruned", []
    run(make(**changes, stop=rounds(20)), folder)
    for placement, count in zip(placements, (32, 45), strict=True):
        before = tmp_path / f"before-{count}"
        shutil.copytree(folder, before)
        found.append(pruned(folder))
        old = replay(before, found[-1].round)
        assert (old.digest, old.chain) == (found[-1].digest, found[-1].link)
        results = run(make(**changes, stop=rounds(count)), folder, resume=True, placement=placement)
    assert outcome(results) == expected and holds(results)
    assert 0 < found[0].round < found[1].round == base_of(folder).round


def test_a_stopped_run_is_pruned_and_shows_all_but_the_commits(whole: Results, tmp_path: Path, smaller: Path) -> None:
    base, last = base_of(smaller), whole.summary["rounds"]
    with closing(sqlite3.connect(smaller / FILE)) as database:
        assert database.execute("SELECT min(round), count(*) FROM rounds").fetchone() == (base.round, last - base.round)
    again = Results.read(smaller)
    assert outcome(again) == outcome(whole)
    (smaller / "results.json").unlink()
    assert outcome(run(scenario(algorithm=HISO), smaller, resume=True)) == outcome(whole)
    for number in (0, base.round, last):
        assert replay(smaller, number).digest == replay(whole.folder, number).digest
        assert replay(smaller, number).chain == replay(whole.folder, number).chain
    pairs = zip(again.history.columns().values(), whole.history.columns().values(), strict=True)
    assert all(ours.tolist() == theirs.tolist() for ours, theirs in pairs)
    found = verify(smaller)
    assert not found.differences and f"the commits of rounds 0 to {base.round - 1}" in found.unchecked
    assert prune(smaller) is None


def test_what_needs_the_deleted_commits_is_refused_in_a_sentence(smaller: Path, seedbus: Command) -> None:
    first = base_of(smaller).round
    assert seedbus("export", str(smaller), "--at", str(first)).code == 0
    refused = seedbus("export", str(smaller), "--at", str(first - 1))
    assert refused.code == 2 and f"its commits were pruned; expected 0 or {first} to 20" in refused.err
    with pytest.raises(RunFolderError, match="its journal was pruned; expected a run with all of its commits"):
        OtherRun.read(smaller, scenario(algorithm=HISO))
    (found,) = analyse(smaller, only="break-even", page=False)
    assert found.facts == {"nothing": "the first commits were pruned from the journal"}


def test_the_command_says_what_it_pruned_and_takes_no_other_task(
    whole: Results, tmp_path: Path, seedbus: Command
) -> None:
    shutil.copytree(whole.folder, tmp_path / "run")
    said = seedbus("runs", "run", "--prune")
    base = base_of(tmp_path / "run")
    assert said.code == 0 and f"the commits of rounds 0 to {base.round - 1} were pruned" in said.out
    assert base.replica.digest.hex() in said.out and base.link.hex() in said.out
    assert "nothing was pruned" in seedbus("runs", "run", "--prune").out
    for other in (["--stop"], ["--patience", "3"], ["--format", "json"]):
        refused = seedbus("runs", "run", "--prune", *other)
        assert refused.code == 2 and f"expected no {other[0]}" in refused.err


def test_an_owner_compares_the_models_that_are_left(
    whole: Results, smaller: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, stored = base_of(smaller).round, list[Any]()
    with closing(Journal.open(smaller, for_writing=False)) as journal:
        stored += journal.rounds()

    def answered(number: int, model: str = "") -> Answer:
        model = model or replay(whole.folder, number).digest
        return Answer(stored[number].cohort[0], number, stored[number - 1].version, model, REPORT)

    def verified(*answers: Answer) -> OwnView:
        record = OwnRecord([scenario(algorithm=HISO)], list(answers))
        monkeypatch.setattr("seedbus.scenarios.running.verify_own.read_record", lambda own: record)
        return verify_own(smaller, smaller)

    assert not verified(answered(3), answered(first), answered(19)).differences
    assert "client" in verified(answered(3), answered(first, "00"), answered(19, "00")).differences[0]
    (only,) = [verified(answered(3, "00"))]
    assert not only.differences and "were pruned, and this client answered in none later" in only.unchecked
    false = answered(3)._replace(version=1)
    assert verified(false).differences, "who was asked, and at which version, is known of pruned rounds"


def test_clients_that_come_with_nothing_get_the_base_as_a_snapshot(tmp_path: Path) -> None:
    late = [{"fault": "late-joiners", "fraction": 0.4, "at_round": 24, "spread_rounds": 4}]
    folder = tmp_path / "run"
    run(scenario(algorithm=HISO, faults=late, stop=rounds(20)), folder)
    found = pruned(folder)
    results = run(scenario(algorithm=HISO, faults=late, stop=rounds(45)), folder, resume=True)
    assert found.round > 5 and holds(results)
    assert results.summary["traffic"]["by_kind"]["snapshot"]["messages"] >= 3
    assert {*results.history.reported.client.tolist()} == {*range(8)}


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["memory", "tcp"])
def test_a_run_of_real_time_goes_on_from_its_base(tmp_path: Path, transport: Any) -> None:
    changes = {"clock": "wall", "algorithm": HISO, "network": {}}
    run(scenario(**changes, stop=rounds(20)), tmp_path / "run")
    found = pruned(tmp_path / "run")
    placement = Placement(transport)
    results = run(scenario(**changes, stop=rounds(40)), tmp_path / "run", resume=True, placement=placement)
    assert found.round > 5 and results.summary["version"] == 40 and holds(results)


@pytest.mark.parametrize("column", ["facts", "fields", "seal", "packed"])
def test_a_changed_base_is_damage(smaller: Path, column: str) -> None:
    table = "pruned" if column == "packed" else "base"
    with closing(sqlite3.connect(smaller / FILE)) as database, database:
        (content,) = database.execute(f"SELECT {column} FROM {table}").fetchone()
        for place in {0, len(content) // 2, len(content) - 1}:
            changed = bytearray(content)
            changed[place] ^= 1
            database.execute(f"UPDATE {table} SET {column} = ?", (bytes(changed),))
            database.commit()
            with pytest.raises(JournalDamaged):
                verify(smaller)


@pytest.mark.parametrize("what", ["model", "chain", "version below", "version above"])
def test_a_base_that_someone_made_up_and_sealed_is_found_by_what_follows_it(smaller: Path, what: str) -> None:
    replica = replay(smaller, base_of(smaller).round).replica
    with closing(sqlite3.connect(smaller / FILE)) as database, database:
        facts, fields = database.execute("SELECT facts, fields FROM base").fetchone()
        round, link, blocks, version, its_digest = msgpack.unpackb(facts)
        if what == "model":
            replica.fields["hessian"][7] += 1
            fields = b"".join(field.tobytes() for _, field in sorted(replica.fields.items()))
            its_digest = bytes.fromhex(replica.digest())
        if what.startswith("version"):
            replica.version = version = version + (1 if what == "version above" else -1)
            its_digest = bytes.fromhex(replica.digest())
        link = bytes(16) if what == "chain" else link
        facts = msgpack.packb([round, link, blocks, version, its_digest])
        database.execute("UPDATE base SET facts = ?, fields = ?, seal = ?", (facts, fields, digest(facts, fields)))
    if what == "model":
        found = verify(smaller)
        assert {"digest", "digests.hessian"} <= {each.field for each in found.differences}
    else:
        with pytest.raises(JournalDamaged):
            verify(smaller)


def test_a_process_killed_at_any_statement_leaves_a_run_that_is_pruned_or_not(
    tmp_path: Path, whole: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process leaves that is killed at a statement is what the files hold then."""
    folder, left = tmp_path / "run", list[Path]()
    shutil.copytree(whole.folder, folder)
    opened = Journal.open

    def keep(statement: str) -> None:
        left.append(tmp_path / f"{len(left)}")
        shutil.copytree(folder, left[-1])

    def watched(*arguments: Any, **options: Any) -> Journal:
        journal = opened(*arguments, **options)
        if options.get("for_writing", True):
            journal._database.set_trace_callback(keep)
        return journal

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "open", watched)
        found = pruned(folder)
    is_pruned = [base_of(each) is not None for each in left]
    assert is_pruned == sorted(is_pruned) and set(is_pruned) == {False, True}
    for each, was in zip(left, is_pruned, strict=True):
        with closing(Journal.open(each)) as journal:
            assert journal.lost() is None and journal.checkpoint() is not None
        again = prune(each)
        assert again is None if was else again is not None and again.link == found.link
    for each in (left[0], left[is_pruned.index(True)], left[-1]):
        assert replay(each).digest == whole.digest


def test_a_journal_without_commits_that_a_model_can_replace_is_not_pruned(tmp_path: Path, whole: Results) -> None:
    run(scenario(algorithm={"name": "fedavg", "learning_rate": 0.1}, verify=False), tmp_path / "dense")
    with pytest.raises(ScenarioError, match="algorithm fedavg is dense"):
        prune(tmp_path / "dense")
    run(scenario(stop=rounds(1)), tmp_path / "short")
    assert prune(tmp_path / "short") is None
    with closing(Journal.open(whole.folder)), pytest.raises(AgentError, match="another process is running here"):
        prune(whole.folder)
