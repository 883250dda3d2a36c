"""`seedbus export RUN messages`, `run --log messages`: every message of a run in words, which add up to its results."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from worlds import go, lossy

from seedbus.agents.observer import NullObserver
from seedbus.scenarios.errors import Exit, Interrupted
from seedbus.scenarios.operations.log_follower import LogFollower
from seedbus.scenarios.reporting.messages import FIELDS
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

FAULTS: list[dict[str, Any]] = [
    {"fault": "drop", "probability": 0.2},
    {"fault": "duplicate", "probability": 0.3},
    {"fault": "corrupt", "probability": 0.1},
    {"fault": "crash", "clients": [2], "at_round": 3, "for_rounds": 4},
    {"fault": "drop", "clients": [5], "kind": "report"},
]
WORLDS: dict[str, dict[str, Any]] = {
    "in memory": {},
    "gossip": {
        "algorithm": {"name": "decomfl", "arithmetic": "integer"},
        "topology": {"kind": "gossip", "graph": "ring"},
        "participation": {"clients": 8},
        "faults": FAULTS[:4],
    },
    "tcp": {"transport": "tcp"},
}


def world(name: str, rounds: int = 12) -> Scenario:
    return lossy(**{"faults": FAULTS, "stop": {"rounds": rounds}} | WORLDS[name])


def lines(seedbus: Command, *options: str, form: str = "csv") -> list[dict[str, str]]:
    """Return the messages of the run in the folder `run`."""
    shown = seedbus("export", "run", "messages", "--format", form, *options)
    assert shown.code == Exit.OK
    return list(csv.DictReader(shown.out.splitlines()))


def is_of_process(message: dict[str, str]) -> bool:
    """Whether it comes from a process that hosts clients or goes there; a run that is resumed has others."""
    return any(message[end].startswith("process") for end in ("from", "to"))


def added_up(messages: list[dict[str, str]], results: Results) -> dict[str, Any]:
    """Return what the lines of messages say of the parts of `traffic` that are sums over messages."""
    of_kind, fates = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
    framing = Counter[bool]()
    for each in messages:
        size, is_link = int(each["payload"]) + int(each["header"]), each["kind"] == "link"
        framing[is_link] += int(each["framed"]) - size
        kind = each["kind"] + " of processes" * is_of_process(each)
        if not is_link:
            of_kind[kind] += Counter(messages=1, bytes=size, payload=int(each["payload"]), header=int(each["header"]))
            fates[kind][each["fate"].partition(" by ")[0].replace(" ", "_")] += 1
    assert (
        len(messages)
        == sum(results.summary["traffic"]["fates"].values()) + results.summary["traffic"]["transport"]["rows"]
    )
    return {"kinds": {kind: dict(sums) for kind, sums in of_kind.items()}, "fates": fates, "framing": framing}


def as_results_say(results: Results) -> dict[str, Any]:
    traffic = results.summary["traffic"]
    kinds = {
        kind: {"messages": each["messages"], "bytes": each["bytes"]}
        | {part: each[f"{part}_bytes"] for part in ("payload", "header")}
        for kind, each in traffic["by_kind"].items()
    }
    return {"kinds": kinds, "fates": {kind: each["fates"] for kind, each in traffic["by_kind"].items()}}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_the_messages_that_are_printed_and_logged_add_up_to_the_traffic_of_the_results(
    seedbus: Command, name: str
) -> None:
    placement = Placement("tcp", 2) if name == "tcp" else None
    results = go(Path("run"), world(name), placement=placement, log="messages")
    messages, traffic = lines(seedbus), results.summary["traffic"]
    found, said = added_up(messages, results), as_results_say(results)
    sessions = {f"{kind} of processes": each for kind, each in traffic["transport"]["sessions"].items()}
    for kind, each in said["kinds"].items():
        assert found["kinds"].pop(kind) == each, kind
        assert found["fates"][kind] == +Counter(said["fates"][kind]), kind
    assert {
        kind: {key: each[key] for key in ("messages", "bytes")} for kind, each in found["kinds"].items()
    } == sessions
    assert found["framing"][False] == traffic["transport"]["framing_bytes"]
    assert found["framing"][True] == traffic["transport"]["link_bytes"]
    assert (found["framing"].total() > 0) == (name == "tcp")
    fates = Counter(each["fate"] for each in messages)
    assert {"delivered", "refused", "dropped by crash"} < fates.keys()
    by_drop = sum(count for fate, count in fates.items() if fate.endswith("drop"))
    assert by_drop and fates["dropped by crash"] == results.summary["faults"][3]["dropped"]
    if name == "gossip":
        assert fates["dropped by drop"] == results.summary["faults"][0]["dropped"]
    else:  # a report of client 5 may be dropped by both; the first is named
        assert fates["dropped by fault 0: drop"] == results.summary["faults"][0]["dropped"]
        assert 0 < fates["dropped by fault 4: drop"] <= results.summary["faults"][4]["dropped"]
    logged = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    told = [{name: str(event[name]) for name in FIELDS} for event in logged if event["event"] == "message"]
    assert told == messages and {event["run"] for event in logged} == {logged[0]["run"]}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    return go(tmp_path_factory.mktemp("kept") / "run", world("in memory", 6)).folder


@pytest.fixture
def whole(kept: Path, tmp_path: Path) -> Path:
    """A copy of it, `run` in the current directory."""
    return shutil.copytree(kept, tmp_path / "run")


@pytest.mark.usefixtures("whole")
def test_messages_are_chosen_by_client_kind_and_round(seedbus: Command) -> None:
    messages = lines(seedbus)
    of_client = [each for each in messages if "client 7" in (each["from"], each["to"])]
    assert of_client and lines(seedbus, "--only", "client=7") == of_client
    assert lines(seedbus, "--only", "kind=Report") == [each for each in messages if each["kind"] == "report"]
    chosen = [each for each in of_client if each["kind"] == "plan" and each["round"] == of_client[0]["round"]]
    round = f"round={of_client[0]['round']}"
    assert lines(seedbus, "--only", "client=7", "--only", "kind=plan", "--only", round) == chosen and chosen
    assert not seedbus("export", "run", "messages", "--only", "client=7", "--format", "csv", "--out", "m.csv").out
    assert list(csv.DictReader(Path("m.csv").read_text(encoding="utf-8").splitlines())) == of_client


@pytest.mark.usefixtures("whole")
def test_all_formats_show_the_same(seedbus: Command) -> None:
    messages = lines(seedbus)
    shown = seedbus("export", "run", "messages").out
    assert shown == seedbus("export", "run", "messages", "--format", "text").out
    head, *rows = shown.splitlines()
    assert head.split() == [*FIELDS] and len(rows) == len(messages)
    for row, each in zip(rows, messages, strict=True):
        expected = {**each, "time": f"{float(each['time']):.6f}"}
        assert row.split() == " ".join(expected.values()).split()
    objects = seedbus("export", "run", "messages", "--format", "jsonl").out.splitlines()
    assert [{name: str(value) for name, value in json.loads(line).items()} for line in objects] == messages


@pytest.mark.usefixtures("whole")
def test_nothing_that_fits_is_said_beside_what_there_is(seedbus: Command) -> None:
    ran = seedbus("export", "run", "messages", "--only", "round=40", "--format", "csv")
    assert ran.out == ",".join(FIELDS) + "\n"
    assert ran.err.startswith("seedbus: note: none of the run's ") and ran.err.count("\n") == 1
    assert ran.err.endswith("it has bye, commit, evaluation, join, plan, report, welcome, in rounds 0 to 5\n")


class Looks(NullObserver):
    """Prints the messages of the run as they are in the middle of it, and then stops it."""

    def __init__(self, seedbus: Command, round: int) -> None:
        self.seedbus = seedbus
        self.round = round

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        if closed.round == self.round:
            self.seen = self.seedbus("export", "run", "messages", "--format", "csv")
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("name", ["in memory", "gossip"])
def test_a_run_shows_its_messages_while_it_goes_on_and_those_of_a_whole_one_once_it_is_resumed(
    seedbus: Command, name: str
) -> None:
    go(Path("run"), world(name, 6))
    messages = lines(seedbus)
    shutil.rmtree("run")
    looks = Looks(seedbus, 2)
    with pytest.raises(Interrupted):
        go(Path("run"), world(name, 6), observer=looks)
    so_far = list(csv.DictReader(looks.seen.out.splitlines()))
    assert 10 < len(so_far) < len(messages) and so_far == messages[: len(so_far)]
    assert "this run is not finished; it had closed 3 rounds" in looks.seen.err
    assert lines(seedbus) == so_far, "after it was stopped"
    go(Path("run"), world(name, 6), resume=True, log="messages")
    resumed = lines(seedbus)
    assert [each for each in resumed if not is_of_process(each)] == [
        each for each in messages if not is_of_process(each)
    ]
    logged = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    told = [{name: str(event[name]) for name in FIELDS} for event in logged if event["event"] == "message"]
    assert told == resumed[len(so_far) :]


@pytest.mark.usefixtures("whole")
def test_newest_messages_that_a_damaged_journal_makes_up_are_refused(seedbus: Command) -> None:
    Path("run/results.json").unlink()
    with sqlite3.connect("run/journal.sqlite") as database:
        database.execute("INSERT INTO rows VALUES (1, ?)", (bytes(range(128)) * 2,))
    ran = seedbus("export", "run", "messages")
    assert ran.code == Exit.FOLDER and "its newest rows, which are damaged in the journal" in ran.err


@pytest.mark.slow
def test_the_reader_of_a_pipe_may_go_away(whole: Path) -> None:
    shown = f"'{sys.executable}' -m seedbus export run messages --format csv | head -n 2"
    ran = subprocess.run(shown, shell=True, cwd=whole.parent, capture_output=True, text=True, check=False)
    assert ran.stdout.count("\n") == 2 and not ran.stderr


@pytest.mark.slow
def test_a_log_without_messages_has_none_and_top_reads_past_them(seedbus: Command) -> None:
    seedbus("run", "small.yaml", "-q", "--out", "plain")
    seedbus("run", "small.yaml", "-q", "--out", "told", "--log", "messages")
    assert '"message"' not in Path("plain/log.jsonl").read_text()
    assert '"event": "message"' in Path("told/log.jsonl").read_text()
    heard = [LogFollower(Path(name)) for name in ("plain", "told")]
    for each in heard:
        each.read()
    assert len(heard[0].rounds) == len(heard[1].rounds) == 5 and heard[0].line == heard[1].line != {}
