"""What a client's owner is told before it joins, what she pins by that, and what a server can do about it: nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from clusters import ServerThread
from commands import Command, CommandResult
from fake_server import Answer, FakeServer, offering
from owners import own_scenario
from processes import wait_for
from worlds import go, scenario

from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import NO_SESSION, Packet, Type
from seedbus.scenarios.consent.sentences import consent, report_bytes
from seedbus.scenarios.consent.terms import FREE, Accepted, terms_of, write_terms
from seedbus.scenarios.running.limits import offered_scenario
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import Scenario

WHOLE = {"name": "decomfl", "arithmetic": "integer", "precision": "int32"}
QUORUM = {"clients": 3, "cohort": 3, "quorum": 3}
PRIVATE = {"clip": 100_000, "noise_multiplier": 1.0, "mechanism": "distributed"}
MASKED: dict[str, Any] = {
    "algorithm": WHOLE,
    "participation": QUORUM,
    "secure_aggregation": {},
    "privacy": PRIVATE,
    "evaluation": {"by": "server"},
}
ESCAPES = "\x1b]0;owned\x07\r\n\u202e"


def offers(**more: Any) -> bytes:
    return offered_scenario(load(own_scenario(**more)))


def met(seedbus: Command, answer: Answer, *arguments: object) -> tuple[CommandResult, FakeServer]:
    with FakeServer(answer) as server:
        said = seedbus("client", "--connect", server.endpoint, "--patience", 5, "--clients", "0-0", *arguments)
    assert "Traceback" not in said.err
    return said, server


def accepted(path: Path, **more: Any) -> Path:
    what = load(own_scenario(**more))
    write_terms(path, what, [f"{topic}: {sentence}" for topic, sentence in consent(what).items()])
    return path


@pytest.mark.parametrize("more", [{}, MASKED], ids=["plain", "masked"])
def test_an_owner_is_told_in_ten_lines_and_joins_nothing(seedbus: Command, more: dict[str, Any]) -> None:
    """What the lines say of other scenarios: tests/mistakes/consent.yaml."""
    said, server = met(seedbus, offering(offers(**more)), "--show")
    assert said.code == 0, said.err
    assert len(said.out.splitlines()) == 10
    assert [sentence for sentence in consent(load(own_scenario(**more))).values() if sentence not in said.out] == []
    assert [each.type for each in server.received] == [Type.HELLO, Type.FAREWELL]
    assert server.farewells == [b"stopped"]


@pytest.mark.slow
def test_the_lines_say_the_bytes_that_a_run_sends(tmp_path: Path) -> None:
    """About: a number of a later round takes more bytes, and the last neighbour to answer is not asked all."""
    fedavg = {"name": "fedavg", "learning_rate": 0.1, "local_steps": 2}
    for number, more in enumerate(({}, {"algorithm": fedavg}, MASKED)):
        few = {"task": {"name": "digits"}, "partition": "iid", "evaluation": {}}
        what = load(own_scenario(**(few | more)))
        sent = go(tmp_path / str(number), what, page=False).summary["traffic"]["by_kind"]
        asked = 3 * 5
        assert sent["report"]["bytes"] / asked == pytest.approx(report_bytes(what), rel=0.01, abs=8), sent
        exchanged = sum(each.up_bytes for each in what.features)
        assert abs(sent.get("tell", {"bytes": 0})["bytes"] / asked - exchanged) <= 16, sent


@pytest.mark.slow
def test_what_is_accepted_passes_whatever_it_is_called_and_wherever_it_comes_from(
    seedbus: Command, tmp_path: Path
) -> None:
    what = scenario(stop={"rounds": 5})
    with ServerThread(what, tmp_path / "a run") as server:
        said = seedbus("client", "--connect", server.watcher.endpoint, "--show", "--accept", "terms.yaml")
        assert said.code == 0 and len(said.out.splitlines()) == 10, said.err
        wait_for(lambda: [event for event, _ in server.watcher.events] == ["listening", "looked"])
        joined = ("client", "--evaluator", "--accept", "terms.yaml", "--connect", server.watcher.endpoint)
        assert seedbus(*joined).code == 0
        first = server.results()
    names = {
        "name": "other",
        "description": "words",
        "expect": {"rounds": {"at_least": 5}},
        "client_groups": {"a": [1]},
    }
    assert {*names, "transport"} == FREE
    other = scenario(stop={"rounds": 5}, **names)
    with ServerThread(other, tmp_path / "another") as server:
        again = seedbus(*joined[:-1], server.watcher.endpoint)
        assert again.code == 0, again.err
        assert server.results().summary["digest"] == first.summary["digest"]


CHANGES: dict[str, dict[str, Any]] = {
    "task.name": {"task": {"name": "digits"}, "partition": "iid", "evaluation": {"by": "server"}},
    "task.hidden": {"task": own_scenario()["task"] | {"hidden": [5]}},
    "task.columns.age.mean": {
        "task": own_scenario()["task"]
        | {"columns": own_scenario()["task"]["columns"] | {"age": {"mean": 51, "deviation": 10}}}
    },
    "partition.kind": {"task": {"name": "digits"}, "partition": "iid", "evaluation": {"by": "server"}},
    "algorithm.name": {"algorithm": {"name": "fedavg", "learning_rate": 0.05}},
    "algorithm.learning_rate": {"algorithm": own_scenario()["algorithm"] | {"learning_rate": 0.06}},
    "algorithm.perturbations": {"algorithm": own_scenario()["algorithm"] | {"perturbations": 4}},
    "evaluation.by": {"evaluation": {"by": "server", "every": 2}},
    "evaluation.every": {"evaluation": {"by": "clients", "every": 1}},
    "stop.rounds": {"stop": {"rounds": 6}},
    "participation.cohort": {"participation": {"clients": 3, "cohort": 2}},
    "seed": {"seed": 2},
}
OF_MASKED: dict[str, dict[str, Any]] = {
    "privacy.noise_multiplier": {"privacy": PRIVATE | {"noise_multiplier": 0.5}},
    "privacy.clip": {"privacy": PRIVATE | {"clip": 200_000}},
    "privacy.mechanism": {"privacy": PRIVATE | {"mechanism": "central"}},
    "secure_aggregation.threshold": {"secure_aggregation": {"threshold": 0.5}},
    "secure_aggregation": {"secure_aggregation": None, "privacy": None},
}


@pytest.mark.few(8)
@pytest.mark.parametrize("field", [*CHANGES, *OF_MASKED])
def test_another_scenario_is_refused_by_the_name_of_what_differs(seedbus: Command, tmp_path: Path, field: str) -> None:
    basis = MASKED if field in OF_MASKED else {}
    terms = accepted(tmp_path / "terms.yaml", **basis)
    changed = basis | (OF_MASKED | CHANGES)[field]
    said, server = met(seedbus, offering(offers(**changed)), "--accept", terms)
    asked, mine = (terms_of(load(own_scenario(**each))) for each in (changed, basis))
    value, other = (json.dumps(each[field]) if field in each else "nothing" for each in (asked, mine))
    if field == "secure_aggregation":  # which has two fields
        other = 'neighbours "all", threshold 0.66'
    assert (said.code, server.farewells) == (9, [b"limits"]), said.err
    assert f"{field} is {value}, accepted is {other}" in said.err and said.err.count("\n") == 1
    assert not server.has_received("terms")
    shown, _ = met(seedbus, offering(offers(**changed)), "--show", "--accept", terms)
    assert shown.code == 9 and field in shown.err, "--show leaves what is accepted as it is"
    Accepted.read(terms).check(load(own_scenario(**basis)))


def test_every_field_of_a_scenario_is_a_term_unless_it_costs_the_owner_nothing() -> None:
    what = load(own_scenario(**MASKED))
    tops = {field.partition(".")[0] for field in terms_of(what)}
    assert tops == {*what.resolved()} - FREE
    assert {*Scenario.model_fields} - tops <= FREE | {"mask", "plugins", "seed_shift", "topology"}


BAD_FILES: dict[str, tuple[bytes | None, int, str]] = {
    "not there": (None, 2, "it does not exist; expected what `seedbus client --show --accept FILE` writes"),
    "empty": (b"", 2, "it has no terms; expected what"),
    "a word": (b"yes", 2, "it has no terms; expected what"),
    "cut within a line": (b"algorithm.name: decomfl\nalgorithm.pert", 2, "line 2: "),
    "no text": (b"algorithm.name: \xff", 2, "it is not UTF-8 text"),
    "a zero": (b"algorithm.name: \0", 2, "as in no text"),
    "a scenario": (b"task: {name: digits}\n", 2, "task holds fields, and a term has one value"),
    "twice": (b"seed: 1\nseed: 2\n", 2, "seed is given twice"),
    "too long": (b"#" * 300_000, 2, "bytes"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_of_terms_that_is_none_is_refused_before_any_server_is_asked(
    seedbus: Command, tmp_path: Path, name: str
) -> None:
    content, code, sentence = BAD_FILES[name]
    path = tmp_path / "terms.yaml"
    if content is not None:
        path.write_bytes(content)
    said, server = met(seedbus, offering(offers()), "--accept", path)
    assert (said.code, server.received) == (code, []), said.err
    assert f"--accept {path}" in said.err and sentence in said.err, said.err


def test_terms_that_are_missing_or_foreign_are_named(seedbus: Command, tmp_path: Path) -> None:
    terms = accepted(tmp_path / "terms.yaml")
    whole = terms.read_text()
    terms.write_text(whole[: whole.index("task.target")])
    said, _ = met(seedbus, offering(offers()), "--accept", terms)
    assert said.code == 9 and 'task.target is "sick", accepted is nothing' in said.err
    terms.write_text(whole + "task.colour: red\n")
    said, _ = met(seedbus, offering(offers()), "--accept", terms)
    assert said.code == 9 and 'task.colour is nothing, accepted is "red"' in said.err


def test_what_a_server_says_controls_neither_a_terminal_nor_the_file(seedbus: Command, tmp_path: Path) -> None:
    columns = {"a.b: [x]": {"mean": 1, "deviation": 1}, 'a"#': ["[red]", ESCAPES], "a": ["1", "2"]}
    task = own_scenario()["task"] | {"columns": columns, "target": "a"}
    hostile = load(own_scenario(task=task))
    offer = offered_scenario(hostile)
    terms = tmp_path / "terms.yaml"
    said, _ = met(seedbus, offering(offer), "--show", "--accept", terms)
    assert said.code == 0 and len(said.out.splitlines()) == 10, said.err
    assert (said.out + said.err).replace("\n", "").isprintable()
    written = terms.read_text()
    assert written.replace("\n", "").isprintable() and '"a.b: [x]' in written.replace("\\", "")
    Accepted.read(terms).check(hostile)
    rest = {name: value for name, value in columns.items() if name != "a.b: [x]"}
    changed = rest | {"b: [x]": columns["a.b: [x]"]}
    other = load(own_scenario(task=task | {"columns": changed}))
    refused, _ = met(seedbus, offering(offered_scenario(other)), "--accept", terms)
    assert refused.code == 9 and refused.err.replace("\n", "").isprintable(), refused.err


def restarted(first: bytes, then: bytes) -> Answer:
    """Return the answers of a server that is restarted with another scenario once its client has joined."""
    answers: list[Callable[[Packet], Iterable[bytes]]] = [offering(first), offering(then)]

    def answer(incoming: Packet) -> Iterable[bytes]:
        if incoming.type is Type.POST and len(answers) > 1:
            answers.pop(0)
            return [packet.packet(Type.DECLINE, NO_SESSION, packet.decline("stale-session", "this session is over"))]
        return answers[0](incoming)

    return answer


def test_a_server_that_is_restarted_with_other_terms_is_refused_too(seedbus: Command, tmp_path: Path) -> None:
    small = scenario()
    write_terms(tmp_path / "terms.yaml", small, [])
    longer = scenario(task={"name": "quadratic", "dimension": 301})
    answer = restarted(offered_scenario(small), offered_scenario(longer))
    said, server = met(seedbus, answer, "--accept", tmp_path / "terms.yaml")
    assert said.code == 9 and "task.dimension is 301, accepted is 300" in said.err, said.err
    types = [each.type for each in server.received]
    assert types.count(Type.HELLO) == 2 and types.count(Type.POST) == 1 and server.farewells[-1:] == [b"limits"]


def test_a_process_that_would_host_nobody_is_told_before_it_asks_a_server(seedbus: Command) -> None:
    with FakeServer(offering(offers())) as server:
        said = seedbus("client", "--connect", server.endpoint, "--clients", "none")
    assert (said.code, server.received) == (2, []), said.err
    assert said.err == "seedbus: --clients none: this process would host nobody; expected --evaluator beside it\n"
