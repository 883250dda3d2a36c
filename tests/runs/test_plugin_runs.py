"""Runs with plug-ins: the same bits in one process and in several, and every process proves that it has the source."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from commands import Command
from plugin_files import MISTAKES, SIGNS, forget
from worlds import go, outcome, scenario

from seedbus.agents.admission import MEMBER, bound, false_proof
from seedbus.agents.journal.journal import Journal
from seedbus.agents.messages import Join
from seedbus.algorithms.dense.compression.top_k import TopK
from seedbus.algorithms.dense.methods.fedcm import FedCM
from seedbus.algorithms.dense.methods.scaffold import Scaffold
from seedbus.bus import Offer
from seedbus.discovery import PLUGINS, PluginError
from seedbus.plugin import DeComFL, Known, Method, ScalarOnly, Selection, load_plugin, register
from seedbus.scenarios.errors import Exit, ScenarioError, WorkerFailed
from seedbus.scenarios.running.limits import Limits, offered_scenario, read_scenario
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.study.store import key
from seedbus.studies.study.worker import done

PROOF = {"selftest": b"s" * 8, "x0": b"x" * 8}
TWO_WORKERS = Placement("tcp", workers=2)
RAISING = 1 + next(number for number, line in enumerate(MISTAKES.read_text().splitlines()) if "/ 0" in line)
"""A line of the plug-in that raises an error."""


pytestmark = pytest.mark.usefixtures("no_plugins")


def own() -> Scenario:
    """Return a scenario with a class of the plug-in for every kind that a scalar-only run has."""
    load_plugin(SIGNS)
    return scenario(
        task={"name": "bowl"},
        algorithm={
            "name": "signs",
            "learning_rate": 0.01,
            "aggregation": "first",
            "directions": {"law": "sparse-signs", "density": 0.5},
        },
        participation={"clients": 8, "cohort": 3, "selection": {"policy": "lowest"}},
        faults=[{"fault": "deaf"}],
        stop={"rounds": 6},
    )


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_run_with_a_plug_in_has_the_same_bits_in_one_process_and_in_two_workers(tmp_path: Path) -> None:
    what = own()
    here = go(tmp_path / "here", what)
    there = go(tmp_path / "there", what, placement=TWO_WORKERS)
    assert outcome(here) == outcome(there) and here.summary["version"] == 6 and not here.summary["refusals"]
    assert replay(tmp_path / "there").digest == here.summary["digest"]


@pytest.mark.slow
def test_a_run_is_resumed_and_replayed_with_the_source_that_began_it_alone(tmp_path: Path, seedbus: Command) -> None:
    plugin = tmp_path / "signs.py"
    shutil.copy(SIGNS, plugin)
    folder = tmp_path / "run"
    settings = ["--set", "algorithm=signs", "--set", "stop.rounds=4", "--out", str(folder), "-q", "--format", "json"]
    ended = seedbus("run", "quickstart", "--plugin", str(plugin), *settings)
    assert ended.code == 0 and json.loads(ended.out)["rounds"] == 4
    forget()
    without = seedbus("export", str(folder))
    assert without.code == Exit.USAGE and "plugins.signs: this process has not loaded that plug-in" in without.err
    assert "damaged" not in without.err and without.err.count("\n") == 1
    again = seedbus("run", "--resume", str(folder), "--plugin", str(plugin), "-q", "--format", "json")
    assert again.code == 0 and json.loads(again.out)["digest"] == json.loads(ended.out)["digest"]
    forget()
    plugin.write_text(SIGNS.read_text().replace("np.sign(scalars)", "-np.sign(scalars)"))
    changed = seedbus("run", "--resume", str(folder), "--plugin", str(plugin), "-q")
    assert changed.code == Exit.USAGE and "another source is needed than" in changed.err


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_worker_whose_file_has_changed_does_not_take_part(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "signs.py"
    shutil.copy(SIGNS, plugin)
    load_plugin(plugin)
    what = scenario(algorithm={"name": "signs"}, stop={"rounds": 2})
    plugin.write_text(SIGNS.read_text() + "# changed\n")
    with pytest.raises(WorkerFailed):
        go(tmp_path / "run", what, placement=TWO_WORKERS)
    assert "plugins.signs: another source is needed than" in capfd.readouterr().err


LAW = """
import sys
from typing import Any, Literal
import numpy as np
from seedbus.plugin import Law

class Rounded(Law):
    law: Literal["rounded"] = "rounded"
    def quantiles(self, probabilities):
        table = np.sqrt(3) * (2 * probabilities - 1)
        table[-1] *= 1 + 2**-20 * ("client" in sys.argv)
        return table
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_process_whose_table_has_another_bit_does_not_take_part(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "rounded.py"
    plugin.write_text(LAW)
    load_plugin(plugin)
    what = scenario(algorithm={"name": "decomfl", "directions": "rounded"}, stop={"rounds": 2})
    with pytest.raises(WorkerFailed):
        go(tmp_path / "run", what, placement=TWO_WORKERS)
    assert "its directions or arithmetic differ" in capfd.readouterr().err


@pytest.mark.slow
def test_a_class_of_a_notebook_runs_in_one_process_and_is_refused_for_several(tmp_path: Path) -> None:
    @register
    class Mine(ScalarOnly):
        """Mine."""

        name: Literal["mine"] = "mine"

    what = scenario(algorithm={"name": "mine"}, stop={"rounds": 2})
    assert go(tmp_path / "here", what).summary["version"] == 2
    with pytest.raises(ScenarioError, match="the class Mine: it is known in this process alone; worker processes"):
        go(tmp_path / "there", what, placement=TWO_WORKERS)


@pytest.mark.slow
def test_a_server_can_name_a_plug_in_and_never_has_one_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that lies where the client works, on its path, or under the name of an installed module."""
    what = json.loads(offered_scenario(own()))
    forget()
    trap = tmp_path / "signs.py"
    trap.write_text("raise SystemError('loaded')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("signs", "signs.py", "../signs", str(trap), "json", "sys.path"):
        document = what | {"plugins": {name: "0" * 32}}
        offer = Offer(-2, ((0, 3),), evaluates=False, scenario=json.dumps(document).encode())
        with pytest.raises(ScenarioError, match="plugins") as raised:
            read_scenario(offer, "tcp://127.0.0.1:1", Limits())
        assert all(problem.isprintable() for problem in raised.value.problems)
    assert not PLUGINS


@pytest.mark.parametrize(
    ("shown", "run", "sentence"),
    [
        (b"", b"p" * 16, "it shows no plug-ins, and the run's scenario needs some"),
        (b"p" * 16, b"", "it shows plug-ins, and the run's scenario needs none"),
        (b"q" * 16, b"p" * 16, f"its plug-ins have digest {(b'q' * 16).hex()}, the run's {(b'p' * 16).hex()}"),
    ],
)
def test_a_join_that_shows_another_plug_in_is_refused_by_name(shown: bytes, run: bytes, sentence: str) -> None:
    proofs = PROOF | ({"plugins": run} if run else {})
    reason, detail = false_proof(Join(-2, (), **PROOF, plugins=shown), proofs) or ("", "")
    assert reason == "plugins" and detail.startswith(sentence)
    for nonce in (b"", b"nonce", MEMBER):
        honest = Join(-2, (), **bound(proofs, nonce))
        assert Join.unpack(honest.pack()) == honest and false_proof(honest, bound(proofs, nonce)) is None


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("picked", "memory", "wrong"),
    [
        ([3, 3, 1], [], "chose client 3 2 times; expected different numbers out of those that it was offered"),
        ([0, 1, 8], [], "chose client 8; expected different numbers out of those that it was offered"),
        ([-1, 0, 1], [], "chose client -1; expected different numbers out of those that it was offered"),
        ([0.0, 1, 2], [], "chose [0.0, 1, 2]; expected a list of clients"),
        (None, [], "chose None; expected a list of clients"),
        ([4, 1], [], "chose a cohort of 2; expected 3, as many as it was asked for"),
        ([0, 1, 2], [None], "remembers [None]; expected a list of numbers"),
        ([0, 1, 2], 3, "remembers 3; expected a list of numbers"),
    ],
    ids=["twice", "unknown", "below 0", "fraction", "none", "too few", "no number", "no list"],
)
def test_a_cohort_or_memory_that_no_journal_may_have_is_refused_before_the_round_is_opened(
    tmp_path: Path, picked: Any, memory: Any, wrong: str
) -> None:
    half: Any = np.float32(0.5)  # a number, which the journal has a form for

    @register
    class Odd(Selection):
        """Odd."""

        policy: Literal["odd"] = "odd"

        def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
            known.memory = memory if round else [half, round]
            return picked if round else [0, 1, 2]

    what = scenario(participation={"clients": 8, "cohort": 3, "selection": {"policy": "odd"}}, stop={"rounds": 3})
    with pytest.raises(PluginError) as raised:
        go(tmp_path / "run", what)
    assert str(raised.value) == f"round 1 cannot open: the selection policy odd {wrong}"
    with closing(Journal.open(tmp_path / "run")) as journal:
        assert [stored.cohort for stored in journal.rounds()] == [[0, 1, 2]]


FOUND = [
    ("algorithm=raises", f"mistakes.py, line {RAISING}, in reported: ZeroDivisionError: float division by zero"),
    ("algorithm=silent", "`reported` of Silent returned None; expected 10 numbers, one for each perturbation"),
    ("algorithm=mute", "move of the method mute returned None; expected True if it has moved server.x, and False"),
    ("faults=[{fault: hasty}]", "the fault hasty judged a message by Verdict(delay_ns=-5, drop=False, copies=0,"),
    ("algorithm=opens-nothing", "FileNotFoundError: [Errno 2] No such file or directory: 'no-such-file'"),
    ("algorithm=leaves", ", in reported: SystemExit: 3"),
    ("algorithm=words", "; expected 10 numbers, one for each perturbation"),
    ("algorithm=shortens", "for a client's update, `finish` of the algorithm shortens returned an array [2] of"),
    ("algorithm=counts", "for the client's vector counts.own, a method returned an array [1] of float32; expected"),
    (
        "algorithm=unmeasured",
        "for a client's unmeasured.loss, `finish` of the algorithm unmeasured gave NoneType; expected",
    ),
    ("algorithm=tallies", "for the server's vector tallies.all, a method returned float; expected numbers [10]"),
    ("faults=[{fault: undecided}]", "the fault undecided judged a message by NoneType; expected a Verdict"),
    ("algorithm={name: fedavg, compression: arrays}", "(can not serialize 'numpy.ndarray' object); expected numbers"),
    (
        "algorithm={name: decomfl, aggregation: wide}",
        "`combine` of the rule wide returned an array [3, 10]",
    ),
    (
        "algorithm={name: fedavg, aggregation: wide}",
        "`blend` of the rule wide returned an array [3]",
    ),
    (
        "algorithm={name: fedavg, channel: narrow}",
        "`noise` of the channel narrow returned an array [2]",
    ),
    ("partition=lists", "the partition lists gave client 0 list; expected an array of indices of samples"),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("setting", "sentence"), [*FOUND[:4], *(pytest.param(*each, marks=pytest.mark.slow) for each in FOUND[4:])]
)
def test_a_mistake_in_a_plug_in_ends_a_run_with_a_sentence(seedbus: Command, setting: str, sentence: str) -> None:
    task = "digits" if setting.startswith("partition") else "{name: quadratic, dimension: 10}"
    task, clients = f"task={task}", "participation={clients: 3}"
    chosen = [part for each in (task, clients, "stop.rounds=2", setting) for part in ("--set", each)]
    code, _, errors = seedbus("run", "small.yaml", "-q", "--out", "out", "--plugin", MISTAKES, *chosen)
    assert code == Exit.BROKEN and sentence in errors and "Traceback" not in errors, errors


def test_an_error_that_no_line_of_a_plug_in_raised_names_the_plug_ins_to_check(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose mistake it is cannot be known, so the traceback stays."""
    monkeypatch.setattr("seedbus.agents.server.rounds.Rounds.open", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) as raised:
        seedbus("run", "small.yaml", "-q", "--plugin", MISTAKES)
    (note,) = raised.value.__notes__
    assert note.startswith("with plug-ins (mistakes): `seedbus check-plugin ") and str(MISTAKES) in note


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            'class A(ScalarOnly):\n    name: Literal["one"] = "one"\nAlias = A\n'
            'class B(A):\n    """Forgets its own name."""\n',
            "the classes A and B have the same name, one; give each algorithm its own",
        ),
        (
            'class A(Method):\n    name: Literal["one"] = "one"\n    defaults = {"server_lr": 0.1}\n',
            "`defaults` of A names server_lr; expected fields of FedAvg: name, local_steps",
        ),
        (
            'class A(Method):\n    name: Literal["one"] = "one"\n    defaults = {"compression": {"kind": "bits"}}\n',
            "`defaults` of A: {'kind': 'bits'} is not accepted for compression (Input tag 'bits' found",
        ),
        (
            'class A(Method):\n    name: Literal["one"] = "one"\n    def sends(self):\n        return ()\n',
            "sends of the method one is a function; expected a property (@property above it)",
        ),
    ],
    ids=["one name twice", "unknown default", "bad default", "no property"],
)
def test_a_plug_in_that_could_not_do_what_it_says_is_not_loaded(tmp_path: Path, text: str, sentence: str) -> None:
    head = "from typing import Any, ClassVar, Literal\nfrom seedbus.plugin import Method, ScalarOnly\n"
    file = tmp_path / "flawed.py"
    file.write_text(head + text.replace("defaults =", "defaults: ClassVar[dict[str, Any]] ="), encoding="utf-8")
    with pytest.raises(ScenarioError) as raised:
        load_plugin(file)
    assert sentence in str(raised.value) and not PLUGINS


@pytest.mark.parametrize("codec", ["top-k", {"kind": "top-k"}, TopK()])
def test_a_method_may_give_its_defaults_in_any_form_that_a_scenario_may(codec: Any) -> None:
    @register
    class Sparse(Method):
        """FedAvg whose clients report few coordinates."""

        defaults: ClassVar = {"compression": codec}
        name: Literal["sparse"] = "sparse"

    alone: Any = scenario(algorithm={"name": "sparse"}).algorithm
    assert alone.compression == TopK()
    both = scenario(algorithm={"name": "fedavg", "compression": {"kind": "top-k"}, "also": [{"name": "sparse"}]})
    assert not both.algorithm.facts.caveats, "it has what the method takes for granted"


@pytest.mark.parametrize("what", ["companions", "sends"])
def test_two_methods_cannot_have_one_vector(what: str) -> None:
    first: Any = FedCM if what == "companions" else Scaffold

    @register
    class Other(first):  # type: ignore[misc]
        """Its vectors have the names of another method's."""

        name: Literal["other"] = "other"

        @property
        def companions(self) -> dict[str, float]:
            return {"fedcm.direction": 0.0} if what == "companions" else {}

        @property
        def sends(self) -> tuple[str, ...]:
            return ("scaffold.c",) if what == "sends" else ()

    own = first.model_fields["name"].default
    with pytest.raises(ScenarioError, match=rf"`{what}` of {own} and of other name the same vector {own}\.[a-z]+; exp"):
        scenario(algorithm={"name": own, "also": [{"name": "other"}]})
    assert scenario(algorithm={"name": "other"}).algorithm.facts.label == "other"


def test_the_order_in_which_a_policy_chooses_does_not_matter(tmp_path: Path) -> None:
    @register
    class Falling(Selection):
        """Falling."""

        policy: Literal["falling"] = "falling"

        def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
            return list(members[:count])[::-1]

    what = scenario(participation={"clients": 8, "cohort": 3, "selection": {"policy": "falling"}}, stop={"rounds": 3})
    ended = go(tmp_path / "run", what)
    assert replay(tmp_path / "run").digest == ended.summary["digest"]


@pytest.mark.slow
def test_a_run_of_a_study_that_a_plug_in_ends_fails_with_the_same_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told in one sentence, as an error of the user; a traceback would call it one of Seedbus."""
    monkeypatch.chdir(tmp_path)
    load_plugin(MISTAKES)
    what = scenario(algorithm={"name": "raises"}, stop={"rounds": 1})
    job: dict[str, Any] = {
        "do": "run",
        "scenario": what.resolved(),
        "folder": str(tmp_path / key(what)),
        "parts": [],
        "launch": None,
        "track": None,
    }
    failed = done(job, lambda facts: None)["failed"]
    assert failed.endswith("division by zero") and "\n" not in failed, failed
    assert f"mistakes.py, line {RAISING}, in reported" in failed


def test_a_scalar_only_algorithm_knows_the_dimension_in_every_method_that_a_run_calls(tmp_path: Path) -> None:
    seen: dict[str, set[int]] = {}

    def knowing(name: str) -> Any:
        def call(self: Any, *given: Any, **named: Any) -> Any:
            seen.setdefault(name, set()).add(self._dimension)
            return getattr(DeComFL, name)(self, *given, **named)

        return call

    hooks = (
        "directions_of",
        "reported",
        "step",
        "learn",
        "plan",
        "aggregate",
        "check",
        "values",
        "apply",
    )
    body = {name: knowing(name) for name in hooks}
    kind = type("Sizing", (DeComFL,), body | {"__annotations__": {"name": Literal["sizing"]}, "name": "sizing"})
    register(kind)
    what = scenario(algorithm={"name": "sizing"}, task={"name": "quadratic", "dimension": 37}, stop={"rounds": 2})
    go(tmp_path / "run", what)
    replay(tmp_path / "run")
    assert seen.pop("plan") == {37} and seen.keys() >= {"directions_of", "reported", "aggregate", "apply", "check"}
    assert all(each == {37} for each in seen.values()), seen
