"""Results that were changed after the run wrote them: whoever shows them says so, and `verify` names what differs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from worlds import lossy, with_facts

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running import verify as module
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.running.verify import verify

WHAT = lossy(stop={"rounds": 12}, expect={"rounds": {"at_least": 12}, "gap": {"at_least": 10.0}})
WORD = "it is not what the run wrote; `seedbus verify` names what differs"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(WHAT, tmp_path_factory.mktemp("made") / "run").folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of a run that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def flips(text: str) -> Iterator[tuple[int, str]]:
    """Yield the text with each of its digits replaced by the next one in turn, and the number of the digit's line."""
    for place, digit in enumerate(text):
        if digit.isascii() and digit.isdigit():
            yield text.count("\n", 0, place), f"{text[:place]}{(int(digit) + 1) % 10}{text[place + 1 :]}"


def values(text: str, before: str = "") -> set[tuple[str, str]]:
    """Return all values of a JSON text by their places, as they are written."""
    found = set()

    def take(value: Any, place: str) -> None:
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, part in parts:
            take(part, f"{place}.{name}" if place else str(name))
        if not parts:
            found.add((f"{before}{place}", str(value)))

    take(json.loads(text, parse_int=str, parse_float=str), "")
    return found


def places(changed: str, text: str, before: str = "") -> set[str]:
    """Return the places of the values in which two JSON texts differ."""
    return {place for place, _ in values(changed, before) ^ values(text, before)}


@pytest.mark.slow
def test_every_changed_digit_of_the_results_is_named_by_verify_and_told_by_a_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, again = folder / "results.json", replay(folder)
    (folder / "report.html").unlink()  # which takes long to make, and has a test of its own
    monkeypatch.setattr(module, "replay", lambda *_, **__: again)  # which depends on no digit of the file
    text = file.read_text()
    count = 0
    for line, changed in flips(text):
        file.write_text(changed)
        try:
            found = verify(folder)
        except RunFolderError as error:  # such as 05, which is no JSON
            assert "results.json: it is damaged (" in str(error) and f"line {line + 1} column" in str(error)
        else:
            assert {(each.file, each.field) for each in found.differences} == {
                ("results.json", place) for place in places(changed, text)
            }
        try:
            assert f"results.json: {WORD}" == Results.read(folder).warning
        except RunFolderError as error:
            assert "results.json: it is damaged (" in str(error)
        count += 1
    assert count > 500
    file.write_text(text)
    assert not verify(folder).differences and not Results.read(folder).warning


def test_every_changed_digit_of_the_evaluations_is_named_by_verify_and_told_by_a_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, again = folder / "metrics.jsonl", replay(folder)
    (folder / "report.html").unlink()
    monkeypatch.setattr(module, "replay", lambda *_, **__: again)
    text = file.read_text()
    for line, changed in flips(text):
        file.write_text(changed)
        try:
            expected = places(changed.splitlines()[line], text.splitlines()[line], f"line {line + 1}: ")
        except ValueError:
            expected = {f"line {line + 1}"}
        assert {(each.file, each.field) for each in verify(folder).differences} == {
            ("metrics.jsonl", place) for place in expected
        }
        assert Results.read(folder).warning == f"metrics.jsonl: {WORD}"
    file.write_text(text + text.splitlines()[-1] + "\n")
    assert [each.field for each in verify(folder).differences] == ["its number of lines"]


def test_a_changed_run_is_told_in_every_table_and_page_and_counts_in_no_study(
    folder: Path, made: Path, seedbus: Command
) -> None:
    results = folder / "results.json"
    results.write_text(results.read_text().replace('"found": ', '"found": 1'))
    for shown in (seedbus("report", folder).out, (folder / "report.html").read_text()):
        assert f"results.json: {WORD}" in " ".join(shown.replace("│", " ").split())
    assert json.loads(seedbus("report", folder, "--format", "json").out)["warning"] == f"results.json: {WORD}"
    assert f"{folder}: results.json: {WORD}" in seedbus("compare", folder, made).err
    refused = seedbus("run", "--resume", folder, "-q")
    assert refused.code == Exit.FOLDER and f"{WORD}; delete results.json, and `seedbus run --resume" in refused.err
    told = seedbus("verify", folder)
    assert told.code == Exit.DIFFERS and int(told.code) == 14
    assert "results.json: expectations.rounds.found is 112; recomputed: 12\n" in told.out
    results.unlink()
    seedbus("run", "--resume", folder, "-q")
    assert seedbus("verify", folder).code == Exit.OK and "warning" not in seedbus("report", folder).out


def test_what_nobody_can_compute_again_is_named_and_compared_with_what_was_noted(
    folder: Path, seedbus: Command
) -> None:
    told = seedbus("verify", folder)
    assert (
        told.code == Exit.OK and "note only: run, wall_s, cpu_s, was_resumed, seedbus, versions, processor" in told.out
    )
    assert "not checked: log.jsonl (nothing of it is read)" in told.out
    results = folder / "results.json"
    summary = json.loads(results.read_text())
    results.write_text(json.dumps(summary | {"wall_s": 1.5}, indent=2))
    found = json.loads(seedbus("verify", folder, "--format", "json").out)["differences"]
    assert [(each["field"], each["shown"], each["how"]) for each in found] == [("wall_s", "1.5", "noted")]
    assert found[0]["right"] == json.dumps(summary["wall_s"])
    results.write_text(json.dumps(summary))  # the same values in another form
    assert [each.field for each in verify(folder).differences] == ["its digest"]


def test_a_changed_digit_of_the_page_is_named_with_its_line(folder: Path, seedbus: Command) -> None:
    file, moved = folder / "report.html", folder.with_name("moved")
    text = file.read_text()
    first, last = text.index("<body>"), text.index("<script>")
    digits = [first + at for at, sign in enumerate(text[first:last]) if sign.isascii() and sign.isdigit()]
    places = [*digits[:: len(digits) // 6], text.index("script-src") + 25, len(text) - 20]
    for place in places:
        if "<td>run folder</td>" in text[:place].splitlines()[-1]:
            continue
        file.write_text(f"{text[:place]}{(ord(text[place]) + 1) % 10}{text[place + 1 :]}")
        (found,) = verify(folder).differences
        assert (found.file, found.field) == ("report.html", f"line {text.count(chr(10), 0, place) + 1}")
        assert len(found.shown) < 200 and found.shown != found.right
    file.write_text(text + "\n")
    assert [each.field for each in verify(folder).differences] == ["its number of lines"]
    folder.rename(moved)
    assert seedbus("report", moved).code == Exit.OK
    assert not verify(moved).differences, "it names the folder as the last command was given it"


def test_results_judged_by_other_bounds_are_those_of_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stricter = WHAT.model_copy(update={"expect": {"rounds": WHAT.expect["rounds"]}})
    before, page = (folder / "results.json").read_bytes(), (folder / "report.html").read_bytes()
    results = run(stricter, folder, resume=True)
    assert not results.warning and not verify(folder).differences and results.expectations.keys() == {"rounds"}
    (folder / "results.json").write_bytes(before)  # as if killed between the note and the file
    assert not Results.read(folder).warning and not verify(folder).differences
    assert (folder / "report.html").read_bytes() != page
    (folder / "report.html").write_bytes(page)  # as if killed before that
    assert not verify(folder).differences


def test_a_run_without_a_digest_says_so_in_one_sentence_and_is_recomputed(folder: Path, seedbus: Command) -> None:
    with_facts(folder, {}, without="results")
    sentence = "this run keeps no digest of results.json, as runs of earlier versions"
    assert Results.read(folder).warning == f"{sentence}; `seedbus verify` computes it again"
    told = seedbus("verify", folder)
    assert told.code == Exit.OK and "not checked: run, wall_s, cpu_s, was_resumed, seedbus, versions, " in told.out
    assert f"processor, report.html ({sentence})" in told.out
    file = folder / "results.json"
    file.write_text(file.read_text().replace('"rounds": 12', '"rounds": 13'))
    assert [each.field for each in verify(folder).differences] == ["rounds"]


def test_the_digest_of_the_model_is_that_of_a_replay_and_not_what_the_journal_says_of_the_end(folder: Path) -> None:
    with closing(Journal.open(folder, for_writing=False)) as journal:
        outcome = json.loads(journal.facts()["outcome"])
    with_facts(folder, {"outcome": json.dumps(outcome | {"digest": "0" * 32})}, without="results")
    file = folder / "results.json"
    file.write_text(file.read_text().replace(f'"digest": "{outcome["digest"]}"', f'"digest": "{"0" * 32}"'))
    (found,) = verify(folder).differences
    assert (found.field, found.right) == ("digest", f'"{outcome["digest"]}"')


@pytest.mark.parametrize("what", ["absent", "damaged"])
def test_results_without_a_journal_that_can_be_read_are_shown_with_a_warning(folder: Path, what: str) -> None:
    journal = folder / "journal.sqlite"
    journal.unlink() if what == "absent" else journal.write_bytes(b"no journal")
    for more in ("-wal", "-shm"):
        journal.with_name(f"{journal.name}{more}").unlink(missing_ok=True)
    sentence = "there is no journal here, so results.json" if what == "absent" else "results.json cannot be checked: "
    assert Results.read(folder).warning.startswith(sentence)
