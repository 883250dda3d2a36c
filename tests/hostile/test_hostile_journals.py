"""A journal that was written to do harm: reading it ends soon, with one sentence.

Its digests prove nothing: whoever writes a journal can compute them.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest
from commands import Command
from journal_cases import filled, killed_run
from snapshot_cases import lagging
from worlds import lossy, outcome

from seedbus.agents.errors import JournalDamaged
from seedbus.agents.journal import file as journal_file
from seedbus.agents.journal.digests import SEAL, seal_of
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.head import HEAD
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.reader import JournalReader, checkpoint_digest, link
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.running.run import run

PAGE = 4096
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n"
READING = [["compare"], ["export"], ["report"], ["run", "-q", "--resume"]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(lossy(stop={"rounds": 3}), tmp_path_factory.mktemp("whole") / "run").folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def change(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / FILE)) as database:
        database.executescript(script)


def sealed(folder: Path, **facts: str) -> None:
    """Change facts and update the seal over them, which anybody can compute."""
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        changed = dict(database.execute("SELECT name, value FROM facts")) | facts
        changed[SEAL] = seal_of(changed)
        database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", changed.items())


def refused(seedbus: Command, folder: Path, what: str, commands: Sequence[list[str]] = READING) -> None:
    for command in commands:
        said = seedbus(*command, folder)
        assert said.code == Exit.FOLDER, command
        assert said.err.startswith(f"seedbus: {folder / FILE}: the journal is damaged: ") and said.err.count("\n") == 1
        assert what in said.err


@pytest.mark.parametrize(
    ("script", "what"),
    [
        (f"DROP TABLE metrics; CREATE VIEW metrics AS {ENDLESS} AS number, '{{}}' AS line FROM c", "view metrics"),
        (f"DROP TABLE facts; CREATE VIEW facts AS {ENDLESS} AS name, n AS value FROM c", "view facts"),
        (
            f"CREATE TRIGGER often AFTER INSERT ON facts BEGIN INSERT INTO metrics {ENDLESS}, 1 FROM c; END",
            "trigger of",
        ),
        ("CREATE VIRTUAL TABLE found USING fts5(words)", "table found"),
        ("DROP TABLE rows; CREATE TABLE rows (number INTEGER PRIMARY KEY, packed AS (zeroblob(1e9)))", "table rows"),
        ("DROP TABLE snapshot; CREATE TABLE snapshot (packed CHECK (packed LIKE '%%%%a'))", "table snapshot"),
        ("CREATE INDEX mine ON rounds (hex(round))", "index mine"),
        ('CREATE TABLE "a\x1b]0;title\nb" (c)', "table a ]0;title b"),
    ],
)
def test_what_is_none_of_a_journals_tables_is_not_read(seedbus: Command, folder: Path, script: str, what: str) -> None:
    change(folder, script)
    (folder / "results.json").unlink()
    for command in READING:
        if command == ["report"]:
            continue  # it reports that the run is unfinished without reading the journal
        said = seedbus(*command, folder)
        assert said.code == Exit.FOLDER, command
        assert said.err.startswith(f"seedbus: {folder / FILE}: the journal is damaged: its {what}")
        assert said.err.endswith("is none of a journal's; its first 0 rounds are sound\n") and said.err.count("\n") == 1


def test_a_finished_runs_report_reads_no_view_either(seedbus: Command, folder: Path) -> None:
    change(folder, f"DROP TABLE metrics; CREATE VIEW metrics AS {ENDLESS} AS number, '{{}}' AS line FROM c")
    refused(seedbus, folder, "its view metrics is none of a journal's")


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"scenario": "[" * 200_000}, "rounds are sound"),
        ({"scenario": "[]"}, "its scenario cannot be read (it is no mapping of fields)"),
        ({"run": "9" * 2**24 + "9"}, "string or blob too big"),
    ],
    ids=["deep", "list", "long"],
)
def test_a_fact_that_is_too_deep_or_too_long_is_not_taken_in(
    seedbus: Command, folder: Path, facts: dict[str, str], what: str
) -> None:
    sealed(folder, **facts)
    refused(seedbus, folder, what)


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"end": "x"}, "it holds what cannot be decoded (Expecting value"),
        ({"end": "[" * 100_000}, "it holds what cannot be decoded (maximum recursion depth"),
        ({"end": "null"}, "its note of the run's end has another form than a run writes (Expected `array`, got `null`"),
        ({"end": '[-1, 0, ["outcome"]]'}, "another form than a run writes (Expected `int` >= 0 - at `$[0]`"),
        (
            {"end": f'[1, {2**63}, ["outcome"]]'},
            "another form than a run writes (Expected `int` <= 9223372036854775807",
        ),
        ({"end": "[1, 0, 7]"}, "another form than a run writes (Expected `array`, got `int` - at `$[2]`"),
        ({"root": "zz"}, "it holds what cannot be decoded (non-hexadecimal"),
        ({"root": "00"}, "round 0 does not verify"),
    ],
    ids=["text", "deep", "null", "negative", "large", "names", "no-root", "other-root"],
)
def test_how_to_take_an_end_back_is_checked_before_it_is_taken_back(
    seedbus: Command, folder: Path, facts: dict[str, str], what: str
) -> None:
    sealed(folder, **facts)
    refused(seedbus, folder, what, [["run", "-q", "--set", "stop.rounds=5", "--resume"]])
    assert (folder / "results.json").exists()


def make_circular(path: Path, table: str, depth: int = 6, children: int = 300) -> None:
    """Make every page of a table but the last refer to the next one `children` times."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=DELETE")
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        with database:
            database.execute("INSERT INTO rows (packed) VALUES (zeroblob(?))", (PAGE * 2 * depth,))
        (pages,) = database.execute("PRAGMA page_count").fetchone()
    content = bytearray(path.read_bytes())
    places = [root, *range(pages - depth, pages)]  # the last pages are the blob's
    content[(places[-1] - 1) * PAGE : places[-1] * PAGE] = content[(root - 1) * PAGE : root * PAGE]
    for page, below in itertools.pairwise(places):
        cells = b"".join(struct.pack(">IB", below, 127) for _ in range(children))  # with their largest key
        start = PAGE - len(cells)
        pointers = b"".join(struct.pack(">H", start + 5 * number) for number in range(children))
        head = struct.pack(">BHHHBI", 5, 0, children, start, 0, below)
        content[(page - 1) * PAGE : page * PAGE] = (head + pointers).ljust(start, b"\0") + cells
    path.write_bytes(content)


@pytest.mark.parametrize("table", ["metrics", "known", "rows", "rounds", "facts"])
def test_pages_that_refer_to_each_other_in_circles_come_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(journal_file, "_STEPS", 1_000_000)
    folder = filled(tmp_path / "run")
    make_circular(folder / FILE, table)

    def all_of(journal: Journal) -> None:
        journal.metrics()
        list(journal.rounds())
        journal.checkpoint()

    for options in ({"for_writing": False}, {}):
        with pytest.raises(JournalDamaged) as raised:
            journal = Journal.open(folder, **options)
            with closing(journal):
                all_of(journal)
        assert "\n" not in str(raised.value)


def test_a_search_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "_STEPS", 1_000_000)
    folder = filled(tmp_path / "run")
    make_circular(folder / FILE, "rounds")
    with (
        closing(Journal.open(folder, for_writing=False)) as journal,
        pytest.raises(JournalDamaged, match="reading it does not come to an end"),
    ):
        list(journal.rounds(100))  # looks for a version that is not there


def test_many_statements_that_each_end_are_not_taken_for_one_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "_STEPS", 0)
    folder = filled(tmp_path / "run")
    with closing(Journal.open(folder, for_writing=False)) as journal:
        for _ in range(5000):
            assert journal._reader.length() == 5


def test_measurements_that_are_nested_too_deeply_are_damage(folder: Path, seedbus: Command) -> None:
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.execute("UPDATE metrics SET line = ?", ("[" * 200_000,))
    said: Any = seedbus("compare", folder)
    assert said.code == Exit.FOLDER and "it holds what cannot be decoded" in said.err and said.err.count("\n") == 1


def forged(folder: Path, **changes: Any) -> Path:
    """Change a journal and compute all of its digests anew.

    Args:
        folder: the run's folder.
        changes: `body`: what makes of the unpacked body of round 1 another; `state`: what makes of the checkpoint's
            state another; `segments`, `snapshot`, and `lines` and `rows`: the new content; `known`: its new rows.
    """
    (folder / HEAD).unlink(missing_ok=True)
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        reader = JournalReader(folder / FILE, database)
        chain = reader.root()
        for round, version, body in database.execute("SELECT round, version, body FROM rounds ORDER BY round"):
            if round == 1 and "body" in changes:
                body = msgpack.packb(changes["body"](msgpack.unpackb(body)))
            chain = link(chain, round, version, body)
            database.execute("UPDATE rounds SET body = ?, chain = ? WHERE round = ?", (body, chain, round))
        for table, column in (("metrics", "line"), ("rows", "packed")):
            if column in changes:
                database.execute(f"DELETE FROM {table}")
                database.execute(f"INSERT INTO {table} ({column}) VALUES (?)", (changes[column],))
        if "known" in changes:
            database.execute("INSERT OR REPLACE INTO known VALUES (?, ?)", changes["known"])
        if "snapshot" in changes:
            database.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?)", (changes["snapshot"],))
        segments, state = database.execute("SELECT segments, state FROM checkpoint").fetchone()
        segments = changes.get("segments", segments)
        state = msgpack.packb(changes.get("state", lambda it: it)(msgpack.unpackb(state, strict_map_key=False)))
        digest = checkpoint_digest(reader.end(), segments, state)
        database.execute("UPDATE checkpoint SET segments = ?, state = ?, chain = ?", (segments, state, digest))
    return folder


def at(*path: int, put: Any) -> Callable[[Any], Any]:
    """Return what replaces one value inside lists; path: its index in each, from the outermost on; none: the whole."""

    def changed(value: Any) -> Any:
        if not path:
            return put
        inner = value
        for index in path[:-1]:
            inner = inner[index]
        inner[path[-1]] = put
        return value

    return changed


BODIES = {
    "no list": lambda body: 5,
    "three fields": lambda body: body[:3],
    "a cohort that is a number": at(0, put=7),
    "a client below 0": at(0, 0, put=-5),
    "a client of another run": at(0, -1, put=2**23),
    "a client twice": lambda body: [body[0][:1] * 2 + body[0][2:], *body[1:]],
    "a report of a word": at(1, put=["x"]),
    "no record": at(2, put=[]),
    "a time that is a word": at(2, 0, put="a"),
    "a time beyond 64 bits": at(2, 0, put=2**64 - 1),
    "too few lags": at(2, 3, put=[0]),
    "lateness beyond 63 bits": at(2, 4, put=[[0, 2**63, [0]]]),
    "a late client of another run": at(2, 4, put=[[0, 1, [2**23]]]),
}


@pytest.mark.few(10)
@pytest.mark.parametrize("what", BODIES)
def test_a_round_of_another_form_is_damage(seedbus: Command, folder: Path, what: str) -> None:
    forged(folder, body=BODIES[what])
    commands = [["report"], ["compare"], ["export"]]
    for command in commands[: 2 if "another run" in what else 3]:  # replaying asks only for commits
        said = seedbus(*command, folder)
        assert said.code == Exit.FOLDER, command
        assert said.err.startswith(f"seedbus: {folder / FILE}: the journal is damaged: ") and said.err.count("\n") == 1


@pytest.mark.parametrize("late", [[[2**63 - 1, -5, [0]]], [[-5, [0]]]], ids=["", "of version 0.1.0"])
def test_a_round_whose_clients_are_ahead_is_reported(seedbus: Command, folder: Path, late: Any) -> None:
    forged(folder, body=lambda body: [*body[:2], [*body[2][:3], [-(2**63)] * len(body[0]), late], body[3]])
    for command in (["report"], ["compare"], ["export"]):
        assert seedbus(*command, folder).code == Exit.OK, command


@pytest.mark.parametrize("commit", [5, [[1, 2, 3]], [["x"] * 8]], ids=str)
def test_a_commit_of_another_form_is_damage(seedbus: Command, folder: Path, commit: Any) -> None:
    forged(folder, body=at(3, put=commit))
    said = seedbus("export", folder)
    assert (
        said.code == Exit.FOLDER
        and "the commit of round 1 cannot be decoded (" in said.err
        and said.err.count("\n") == 1
    )


@pytest.mark.parametrize(
    "line", ["5", "{}", "[" * 100_000, '{"round": "x"}', '{"round": 1%s}' % ("0" * 400), '{"\\u001b": 1}'], ids=range(6)
)
def test_measurements_of_another_form_are_damage(seedbus: Command, folder: Path, line: str) -> None:
    forged(folder, line=line)
    refused(seedbus, folder, "", commands=[["compare"]])
    (folder / "results.json").unlink()
    refused(seedbus, folder, "", commands=[["run", "-q", "--resume"]])


def leaves(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield the paths to all values inside lists."""
    yield path
    for index, inner in enumerate(value if isinstance(value, list) else ()):
        yield from leaves(inner, (*path, index))


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with late reports, clients that are away and messages in flight, killed after its eighth round."""
    lates = {"clients": 8, "cohort": 3, "deadline_s": 0.5, "late": {}}
    faults = [{"fault": "drop", "probability": 0.3}, {"fault": "churn", "stays": 1.0, "away": 1.0}]
    what = lagging(lossy, participation=lates, faults=faults, stop={"rounds": 14})
    with pytest.MonkeyPatch.context() as patch:
        return killed_run(tmp_path_factory.mktemp("cut"), patch, what)


@pytest.mark.slow
def test_a_state_of_another_form_is_damage_or_does_no_harm(cut: Path, tmp_path: Path, seedbus: Command) -> None:
    with closing(sqlite3.connect(cut / FILE)) as database:
        ((state,),) = database.execute("SELECT state FROM checkpoint")
    paths = sorted(leaves(msgpack.unpackb(state, strict_map_key=False)))
    draw = random.Random(1)
    for path in draw.sample(paths, 25):
        folder = Path(shutil.copytree(cut, tmp_path / "run", dirs_exist_ok=True))
        put: Any = draw.choice([-1, None, "x\x1b", [], {}, 1e308, b"x", [[1, 2, 3]]])
        forged(folder, state=at(*path, put=put))
        said = seedbus("run", "-q", "--resume", folder)
        assert said.code in (Exit.OK, Exit.FOLDER), (path, put)
        assert said.code == Exit.OK or (
            "a state of another form than a server writes" in said.err and said.err.count("\n") == 1
        )
        shutil.rmtree(folder)


def added(*path: int, put: Any) -> Callable[[Any], Any]:
    """Return what appends a value to a list inside lists; path: as for `at`."""

    def changed(value: Any) -> Any:
        inner = value
        for index in path:
            inner = inner[index]
        inner.append(put)
        return value

    return changed


STATES = {
    "a worst return that there is not": at(2, 2, put=[[0, 99]]),
    "a worst return below 0": at(2, 2, put=[[0, -1]]),
    "a message of a round beyond 64 bits": added(
        1, 2, put=[10**10, 1, 6, 3, 2**64 - 1, 0, 0, 3, 10, [0, 0, 0, 0], b"x", False, False]
    ),
    "a message with a sum beyond 64 bits": added(
        1, 2, put=[10**10, 1, 7, 3, 8, 0, 0, 3, 10, [2**63, 0, 0, 0], b"x", False, False]
    ),
    "an answer to a round beyond 64 bits": added(1, 3, put=[10**10, 6, 3, 2**64 - 1, 0, 0, 3, [b"x"]]),
    "a fault's count beyond 64 bits": at(1, 4, 0, put=[["dropped", 2**64 - 1]]),
    "a next round far ahead": at(0, 0, 0, put=2**40),
    "a next round that is over": at(0, 0, 0, put=2),
    "a time after the last instant": at(1, 0, put=2**62),
    "a move of clients in a round to come": at(2, 0, put=2**62),
    "a move of clients at a time to come": at(2, 1, put=2**50),
}


@pytest.mark.parametrize("what", STATES)
def test_a_state_that_no_server_writes_is_damage(cut: Path, tmp_path: Path, seedbus: Command, what: str) -> None:
    folder = forged(Path(shutil.copytree(cut, tmp_path / "run")), state=STATES[what])
    said = seedbus("run", "-q", "--resume", folder)
    assert said.code == Exit.FOLDER and said.err.count("\n") == 1
    assert said.err.startswith(f"seedbus: {folder / FILE}: the journal is damaged: ")
    assert "a state of another form than a server writes: " in said.err


FEDAVGM = {"name": "fedavgm", "aggregation": "clipped"}
KSEED = {"name": "fedkseed", "pool": 16}
EXACT = {"name": "decomfl", "arithmetic": "integer", "aggregation": "clipped"}
OF_ALGORITHM = (0, 0, 4)
"""Where a checkpoint's state has the algorithm's own."""


@pytest.mark.parametrize(
    ("algorithm", "states"),
    [
        pytest.param(
            FEDAVGM,
            {(): 5, (0,): b"123", (1,): {"x": 1}, (2,): {"fedavgm.m": b"1234"}, (3,): {"a": 1}},
            marks=pytest.mark.slow,
        ),
        (KSEED, {(): "x"}),
        (EXACT, {(): [1], (0,): ["x"], (1,): -1}),
    ],
    ids=lambda each: each.get("name"),
)
def test_an_algorithms_state_of_another_form_is_damage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seedbus: Command,
    algorithm: dict[str, Any],
    states: dict[tuple[int, ...], Any],
) -> None:
    task: dict[str, Any] = {"task": {"name": "digits", "model": "softmax"}} if algorithm is FEDAVGM else {}
    killed = killed_run(tmp_path, monkeypatch, lossy(algorithm=algorithm, stop={"rounds": 9}, **task))
    for number, (path, put) in enumerate(states.items()):
        folder = Path(shutil.copytree(killed, tmp_path / str(number)))
        said = seedbus("run", "-q", "--resume", forged(folder, state=at(*OF_ALGORITHM, *path, put=put)))
        assert said.code == Exit.FOLDER and said.err.count("\n") == 1, (path, said.err)
        assert said.err.startswith(f"seedbus: {folder / FILE}: the journal is damaged: ")
    assert seedbus("run", "-q", "--resume", killed).code == Exit.OK


@pytest.mark.parametrize(
    "changes",
    [
        {"known": (2**50, 1)},
        {"packed": b"abc"},
        {"packed": struct.pack("=14q", *[999] * 14)},
        {"snapshot": b"\x01"},
        {"segments": 400_000},
        {"segments": 2**60},
    ],
    ids=str,
)
def test_what_else_a_run_goes_on_from_is_damage(cut: Path, tmp_path: Path, seedbus: Command, changes: Any) -> None:
    folder = forged(Path(shutil.copytree(cut, tmp_path / "run")), **changes)
    said = seedbus("run", "-q", "--resume", folder)
    assert said.code == Exit.FOLDER and said.err.startswith(f"seedbus: {folder}") and said.err.count("\n") == 1


def test_a_state_with_counts_below_zero_and_messages_of_hostile_clients_is_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [{"fault": "straggler", "fraction": 0.5, "factor": 0.5}, {"fault": "hostile", "fraction": 0.3}]
    what = lossy(
        compute={"evaluation": 0.05}, network={"latency": 0.1}, faults=[*lossy().resolved()["faults"], *faults]
    )
    killed = killed_run(tmp_path, monkeypatch, what)
    with closing(sqlite3.connect(killed / FILE)) as database:
        ((state,),) = database.execute("SELECT state FROM checkpoint")
    *_, fault_counts = msgpack.unpackb(state, strict_map_key=False)[1]
    assert any(count < 0 for counts in fault_counts for _, count in counts)
    resumed, whole = run(what, killed, resume=True), run(what, tmp_path / "whole")
    assert outcome(resumed) == outcome(whole)
    reasons = list(whole.summary["refusal_details"])
    assert list(resumed.summary["refusal_details"]) == reasons == sorted(reasons) and len(reasons) > 1
