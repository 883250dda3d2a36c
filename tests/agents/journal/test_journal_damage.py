"""A journal that is cut or flipped at any byte is an exact prefix of what was written, or is refused."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journal_cases import FRAME, HEADER, WAL, entry, flipped, killed_run
from worlds import lossy, outcome

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.digests import TableDigests
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.scenarios.running.run import run

ROUNDS = 6


def contents(journal: Journal) -> Any:
    """Return everything from which a resumed run continues, verified."""
    checkpoint = journal.checkpoint()
    return journal.facts(), journal.metrics(), checkpoint, list(journal.rounds())


def write_journal(folder: Path, keep: Path) -> list[Any]:
    """Write a journal and copy it unclosed to `keep`, as a kill would leave it; return its contents after every
    change."""
    with closing(Journal.create(folder, {"scenario": "{}", "x0": "00"})) as journal:
        states = [contents(journal)]
        journal.note({"run": "0123456789abcdef"})
        states.append(contents(journal))
        for round in range(ROUNDS):
            fill: dict[str, Any] = {"is_rotated": True, "segments": 1} if round == 3 else {"segments": round // 3}
            rows = {"rows": bytes([round]) * 1500, "actual_versions": [(client, round) for client in range(40)]}
            journal.append(entry(round, **rows, **fill))
            states.append(contents(journal))
        journal.rotated(2)
        states.append(contents(journal))
        shutil.copytree(folder, keep)
    return states


def frames(log: bytes) -> list[int]:
    """Return the end offset of each transaction of a write-ahead log; a commit frame contains the new file size."""
    ends = [at + FRAME for at in range(HEADER, len(log), FRAME) if any(log[at + 4 : at + 8])]
    assert (len(log) - HEADER) % FRAME == 0 and len(ends) > ROUNDS
    return ends


def recover(folder: Path, states: list[Any]) -> str:
    """Open a damaged journal; return the index of the recovered state, or a word for how it is refused."""
    try:
        with closing(Journal.open(folder)) as journal:
            recovered = contents(journal)
    except JournalDamaged as error:
        sound = "first round is sound" if error.good == 1 else f"first {error.good} rounds are sound"
        assert str(folder / FILE) in str(error) and sound in str(error)
        assert error.good <= ROUNDS and "\n" not in str(error)
        return "refused"
    except RunFolderError as error:  # its header declares a format that cannot be written
        assert str(folder / FILE) in str(error)
        return "unwritable"
    assert recovered in states, "it was never like this"
    return str(states.index(recovered))


class DamagedJournal:
    """A folder for damaged copies of one journal."""

    def __init__(self, base: Path) -> None:
        self.base, self.folder = base, base / "damaged"
        self.states = write_journal(base / "run", base / "kept")
        self.database, self.log = ((base / "kept" / name).read_bytes() for name in (FILE, WAL))

    def with_(self, database: bytes, log: bytes | None) -> str:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / FILE).write_bytes(database)
        if log is not None:
            (self.folder / WAL).write_bytes(log)
        return recover(self.folder, self.states)


@pytest.fixture
def bench(memory: Path) -> DamagedJournal:
    return DamagedJournal(memory)


STEPS = [101, pytest.param(17, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.soak)]


@pytest.mark.few(1)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_damage_in_the_last_record_of_a_log_recovers_the_prefix_before_it(
    bench: DamagedJournal, how: str, step: int
) -> None:
    *_, begins, ends = frames(bench.log)
    assert ends == len(bench.log)
    outcomes = Counter(
        bench.with_(bench.database, bench.log[:at] if how == "cut" else flipped(bench.log, at))
        for at in range(begins, ends, step)
    )
    print(f"{how} at {outcomes.total()} offsets: {dict(outcomes)}")
    before = str(len(bench.states) - 2)
    assert set(outcomes) == {before}, "a log says of every frame whether it is whole"
    assert bench.with_(bench.database, bench.log) == str(len(bench.states) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("step", [1009, 211, pytest.param(61, marks=pytest.mark.soak)])
@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_damage_anywhere_in_a_log_recovers_an_exact_prefix(bench: DamagedJournal, how: str, step: int) -> None:
    ends, outcomes = frames(bench.log), Counter[str]()
    for at in range(0, len(bench.log), step):
        kind = bench.with_(bench.database, bench.log[:at] if how == "cut" else flipped(bench.log, at))
        outcomes[kind] += 1
        intact = sum(end <= at for end in ends) if at >= HEADER else 0
        assert kind == str(intact), f"at {at}"
    print(f"{how} at {outcomes.total()} offsets: {dict(outcomes)}")


def test_a_log_that_lags_behind_its_file_is_refused_or_an_exact_prefix(bench: DamagedJournal) -> None:
    """The file has all changes and the log is cut, so that old pages of the log would hide newer pages of the file."""
    copy = Path(shutil.copytree(bench.base / "kept", bench.base / "copied"))
    with closing(Journal.open(copy)):
        pass  # the last connection to close moves the log into the file
    assert not (copy / WAL).exists()
    copied, outcomes = (copy / FILE).read_bytes(), Counter[str]()
    for end in [0, HEADER, *(HEADER + FRAME * number for number in range(1, (len(bench.log) - HEADER) // FRAME + 1))]:
        kind = bench.with_(copied, bench.log[:end])
        assert kind != "unwritable", f"at {end}"
        outcomes[kind] += 1
    print(f"a log cut at {outcomes.total()} frames under a newer file: {dict(outcomes)}")
    assert outcomes["refused"] > ROUNDS > len(outcomes) - 2


@pytest.mark.slow
@pytest.mark.parametrize("step", [53, *(pytest.param(step, marks=pytest.mark.soak) for step in (11, 3))])
@pytest.mark.parametrize("mask", [1, 0xFF])
def test_a_flipped_byte_of_a_file_is_refused_or_hit_no_content(bench: DamagedJournal, mask: int, step: int) -> None:
    with closing(Journal.open(bench.base / "kept")):
        pass
    database, outcomes = (bench.base / "kept" / FILE).read_bytes(), Counter[str]()
    used = [at for at, byte in enumerate(database) if byte]
    for at in [*used[::step], *range(0, len(database), 10 * step)]:
        kind = bench.with_(flipped(database, at, mask), None)
        assert kind in ("refused", "unwritable", str(len(bench.states) - 1)), f"at {at}"
        assert kind != "unwritable" or at < 100, f"at {at}: only the header says what may be written"
        if kind.isdigit():
            check_append(bench.folder, bench.states[-1], at)
        outcomes[kind] += 1
    print(f"flipped at {outcomes.total()} offsets: {dict(outcomes)}")
    assert outcomes["refused"] > 10


def check_append(folder: Path, state: Any, at: int) -> None:
    """Append to a recovered journal; check that its contents are kept, or that the damage is detected then."""
    facts, metrics, checkpoint, rounds = state
    added = entry(ROUNDS, rows=b"x" * 9000, actual_versions=[(client, ROUNDS) for client in range(300)])
    try:
        with closing(Journal.open(folder)) as journal:
            journal.append(added)
        with closing(Journal.open(folder)) as journal:
            recovered = contents(journal)
    except JournalDamaged:
        return
    assert recovered[0] == facts and recovered[1] == [*metrics, *added.metrics] and recovered[3][:-1] == rounds, (
        f"at {at}"
    )
    assert recovered[2] == replace(
        checkpoint,
        state=added.state,
        segments=added.segments,
        rows=checkpoint.rows + added.rows,
        metrics=recovered[1],
        positions=checkpoint.positions | dict(added.positions),
        actual_versions=checkpoint.actual_versions | dict(added.actual_versions),
        last=(ROUNDS, ROUNDS + 1, [1, 2], [2], True, 0),
    ), f"at {at}"


def test_members_at_other_versions_have_another_digest() -> None:
    def digests_of(members: dict[int, int], table: str = "known") -> TableDigests:
        return TableDigests().moved(table, (), [(version, [client]) for client, version in members.items()])

    members = {-2: 4, 0: 0, 1: 4, 2: 3, 10**6: 4}
    digests = digests_of(members)
    assert digests == TableDigests().moved("known", (), [(4, [1, 10**6, -2]), (3, [2]), (0, [0])])
    for client, version in members.items():
        others = {name: value for name, value in members.items() if name != client}
        for changed in (others, others | {client: version + 1}, members | {5: 0}, others | {client + 7: version}):
            assert digests_of(changed) != digests
        stepped = digests_of(others | {client: 1})
        assert stepped.moved("known", [(1, [client])], [(version, [client])]) == digests
    assert digests_of(members, "held") != digests
    assert digests_of(members | {1: members[2], 2: members[1]}) != digests


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 20, pytest.param(60, marks=pytest.mark.soak)])
def test_a_run_with_a_torn_journal_resumes_and_ends_alike_or_is_refused(
    memory: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    what = lossy(stop={"rounds": 12})
    reference = outcome(run(what, memory / "whole"))
    killed = killed_run(memory, monkeypatch, what)
    log, outcomes = (killed / WAL).read_bytes(), Counter[str]()
    begins = frames(log)[-4]
    for number in range(count):
        at = begins + (len(log) - begins) * number // count
        for how, content in (("cut", log[:at]), ("flipped", flipped(log, at))):
            folder = Path(shutil.copytree(killed, memory / f"{how}-{number}"))
            (folder / WAL).write_bytes(content)
            assert outcome(run(what, folder, resume=True)) == reference
            outcomes[how] += 1
    print(f"{outcomes.total()} torn journals: every run ended alike")
