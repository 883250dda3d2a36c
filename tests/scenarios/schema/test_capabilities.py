"""What does not go together is refused with the reasons of both parts, and with what is accepted instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import combinations_page
import pytest
from pydantic import ValidationError

from seedbus.capabilities import Objection, objection
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.stress.draws import Chooser
from seedbus.studies.stress.random_scenarios import any_document

PAGE = Path(__file__).resolve().parents[3] / "docs" / "combinations.md"
SMALL: dict[str, Any] = {
    "task": {"name": "quadratic"},
    "algorithm": {"name": "decomfl"},
    "participation": {"clients": 8},
    "stop": {"rounds": 5},
}
DIGITS = {"name": "digits", "model": "softmax"}
EXACT = {"name": "decomfl", "arithmetic": "integer"}
WHOLE = EXACT | {"precision": "int32"}
UNITS = {"name": "fedavg", "compression": "fixed-point", "weighting": "uniform"}
CROWD = {"clients": 8, "quorum": 2}
STREAM = {"clients": 8, "cohort": 4, "mode": "stream"}
GOSSIP: dict[str, Any] = {"algorithm": EXACT, "topology": {"kind": "gossip", "graph": "ring"}}
MASKED: dict[str, Any] = {"algorithm": WHOLE, "participation": CROWD, "secure_aggregation": {}}
NOISE = {"clip": 1000, "noise_multiplier": 1.0}
PRIVATE: dict[str, Any] = {"algorithm": WHOLE, "participation": CROWD, "privacy": NOISE}
SECRET: dict[str, Any] = {"algorithm": WHOLE, "privacy": NOISE | {"cohorts": "secret"}}
COLLUDING = {"faults": [{"fault": "colluding", "attack": "ipm"}]}
CRASH = {"fault": "crash", "for_rounds": 2}
HIDES, SHOWS = "secure_aggregation shows the server their sum only", "privacy has noise for their sum only"
NO_SERVER, TELLS = ", and topology runs without one", "privacy.cohorts: secret has ε count on it that nobody knows"
FIXED = "with compression: fixed-point and weighting: uniform"

REFUSED: list[tuple[dict[str, Any], str]] = [
    # a task and what is done with its samples
    ({"partition": "natural"}, "partition: natural divides samples, and task: quadratic has none; expected partition:"),
    ({"partition": {"kind": "dirichlet", "alpha": 1}, "task": {"name": "null"}}, "task: null has none"),
    (
        {"partition": "natural", "task": DIGITS},
        "partition: natural divides samples by their owners, and task: digits has samples without owners; expected "
        "partition: dirichlet, file, flwr, iid, pathological, quantity or others; or task: femnist, hugging-face, "
        "image-folder, shakespeare or table",
    ),
    ({"partition": {"kind": "by-column", "column": "x"}, "task": DIGITS}, "task: digits has samples without columns"),
    ({"faults": [{"fault": "label-flip"}]}, "faults.0 changes classes of samples, and task: quadratic has none"),
    ({"mask": {"rule": "gradient", "density": 0.1}}, "mask.rule: gradient needs gradients on a validation split, and"),
    (
        {"mask": {"rule": "gradient", "density": 0.1}, "task": DIGITS | {"validation": 0}},
        "task: digits has none with these settings; expected mask.rule: largest, smallest or random",
    ),
    ({"algorithm": {"name": "lozo"}}, "algorithm: lozo needs layers, and task: quadratic has none"),
    (
        {"algorithm": {"name": "lozo"}, "task": DIGITS, "mask": {"rule": "random", "density": 0.5}},
        "algorithm: lozo takes directions of whole layers, and mask leaves parts of them",
    ),
    (
        {"algorithm": {"name": "moon"}, "task": DIGITS | {"micro_batch": 3}},
        "algorithm: moon needs outputs of whole batches, and task.micro_batch: 3 divides them",
    ),
    ({"algorithm": {"name": "moon"}}, "needs the outputs of a classifier that learns by cross-entropy, and task: quad"),
    # reports of a round, late ones, and messages that are lost
    (
        {"algorithm": {"name": "hiso"}, "participation": {"clients": 8, "late": {}}},
        "participation.late lets late reports count, and algorithm: hiso takes steps to which late scalars do not add",
    ),
    (
        {"algorithm": {"name": "fedavg", "channel": "aircomp"}, "participation": {"clients": 8, "late": {}}},
        "and algorithm: fedavg sums all reports of a round at once in its channel",
    ),
    (
        {"algorithm": {"name": "decomfl", "aggregation": "median"}, "participation": {"clients": 8, "late": {}}},
        "algorithm.aggregation: median compares the reports of one round, beside which a late one would count "
        "unchecked, and participation.late lets late reports count; expected algorithm.aggregation: mean, or leave "
        "participation.late out",
    ),
    ({"faults": [{"fault": "delay", "by": 1}, {"fault": "drop"}]}, "faults.1 loses messages, so a round would wait fo"),
    (
        {"algorithm": EXACT, "participation": STREAM, "faults": [{"fault": "server-crash", "at_round": 3}]},
        "faults.0 loses reports of earlier rounds, whose clients would count as at work for ever; set participation.d",
    ),
    ({"algorithm": {"name": "fedkseed"}} | COLLUDING, "faults.0 compares reports, and algorithm: fedkseed gives each"),
    # lag, and seeds that are shifted
    (
        {"algorithm": {"name": "fedavg"}, "lag": {"snapshot_after_commits": 5}},
        "and algorithm: fedavg always sends its clients the newest model",
    ),
    ({"lag": {"snapshot_after_s": 1.0}}, "lag.snapshot_after_s: 1.0 needs to know how long it takes to fold a commit,"),
    ({"algorithm": {"name": "fedscalar"}, "seed_shift": True}, "seed_shift changes the seed of each round, and algori"),
    ({"seed_shift": True, "lag": {"snapshot_after_commits": 5}}, "lag sends snapshots of the model through the server"),
    # a stream
    (
        {"participation": STREAM},
        "participation.mode: stream commits each report as it comes, in any order, and algorithm: decomfl adds to x "
        "what depends on their order with these settings; expected participation.mode: rounds; or algorithm: decomfl, "
        "fedscalar-shared or mezo with arithmetic: integer, or fedkseed",
    ),
    ({"participation": STREAM, "algorithm": {"name": "fedavg"}}, "and algorithm: fedavg adds to x what depends on the"),
    (
        {"participation": STREAM, "algorithm": EXACT | {"aggregation": "median"}},
        "median compares the reports of a round, and participation.mode: stream commits each report as it comes; expec",
    ),
    (MASKED | {"participation": STREAM}, "secure_aggregation hides reports in the sum of a round, and participation.m"),
    (PRIVATE | {"participation": STREAM}, "privacy accounts for the sum of a round, and participation.mode: stream co"),
    ({"participation": STREAM, "algorithm": EXACT} | COLLUDING, "faults.0 compares the reports of a round, and partic"),
    # masked reports
    (
        MASKED | {"algorithm": {"name": "decomfl"}},
        "secure_aggregation adds up whole numbers, and algorithm: decomfl reports none with these settings; expected "
        "algorithm: decomfl, fedscalar-shared or mezo with arithmetic: integer and precision: int32, or ",
    ),
    (MASKED | {"algorithm": UNITS | {"weighting": "samples"}}, FIXED),
    *((MASKED | {"algorithm": UNITS | {"name": each}}, FIXED) for each in ("scaffold", "fedexp", "mifa")),
    (MASKED | {"algorithm": UNITS | {"aggregation": "krum"}}, f"krum compares single reports, and {HIDES}"),
    (MASKED | {"algorithm": WHOLE | {"aggregation": "median"}}, f"median compares single reports, and {HIDES}; expect"),
    (MASKED | {"participation": CROWD | {"late": {}}}, "hides reports in the sum of one round, and participation.late"),
    (
        MASKED | {"participation": CROWD | {"selection": {"policy": "rarest"}}},
        f"participation.selection: rarest looks at single reports, and {HIDES}; expected participation.selection: "
        "poisson or uniform",
    ),
    (MASKED | COLLUDING, f"faults.0 replaces single reports, and {HIDES}; leave faults.0 or secure_aggregation out"),
    # noise
    (PRIVATE | {"algorithm": {"name": "hiso"}}, "privacy clips and adds up whole numbers, and algorithm: hiso reports"),
    (PRIVATE | {"algorithm": UNITS | {"weighting": "samples"}}, FIXED),
    (PRIVATE | {"algorithm": UNITS | {"name": "feddyn"}}, "and algorithm: feddyn has clients that remember what they "),
    (PRIVATE | {"algorithm": UNITS | {"also": [{"name": "feddyn"}]}}, "has clients that remember what they reported"),
    (PRIVATE | {"algorithm": WHOLE | {"aggregation": "median"}}, f"median compares single reports, and {SHOWS}"),
    (PRIVATE | {"participation": CROWD | {"late": {}}}, "privacy has noise for the sum of one round, and participatio"),
    (PRIVATE | {"participation": CROWD | {"selection": {"policy": "oort"}}}, "oort looks at single reports, and"),
    (PRIVATE | COLLUDING, f"faults.0 replaces single reports, and {SHOWS}; leave faults.0 or privacy out"),
    (PRIVATE | {"privacy": NOISE | {"mechanism": "distributed"}}, "privacy.mechanism: distributed gives a report a sh"),
    (PRIVATE | {"evaluation": {"split": "train"}}, "evaluation.split measures on the clients' own samples, without no"),
    ({"stop": {"rounds": 5, "epsilon": 1.0}}, "stop.epsilon is the limit of a private run; set privacy"),
    # cohorts that nobody knows
    (SECRET | {"clock": "wall"}, "privacy.cohorts: secret samples from all clients, and clock: wall lets some be away"),
    (
        SECRET | {"participation": {"clients": 8, "deadline_s": 1}, "faults": [CRASH]},
        "privacy.cohorts: secret samples from all clients, and faults.0 keeps some away; expected privacy.cohorts: pub",
    ),
    (SECRET | {"secure_aggregation": {}, "participation": CROWD}, f"which shows that so few came, and {TELLS}"),
    (SECRET | {"stop": {"rounds": 5, "bytes": 9000}}, f"stop.bytes lets the number of commits tell of .*, and {TELLS}"),
    (SECRET | {"stop": {"rounds": 5, "simulated_s": 9}, "network": {"latency": 1}}, "stop.simulated_s lets the number"),
    (
        SECRET | {"participation": {"clients": 8, "deadline_s": 1, "deadline": {}}},
        f"participation.deadline adapts to those whom rounds asked, so that who is in time tells of them, and {TELLS}",
    ),
    # no server
    (GOSSIP | {"algorithm": {"name": "decomfl"}}, "algorithm: decomfl has commits that are no exact sum with these se"),
    (GOSSIP | {"algorithm": {"name": "fedavg"}}, "topology adds up commits in any order, and algorithm: fedavg has co"),
    (GOSSIP | {"algorithm": {"name": "fedkseed"}}, "topology needs steps with one seed each, and algorithm: fedkseed "),
    (GOSSIP | {"algorithm": EXACT | {"aggregation": "median"}}, "compares the reports of a round, and topology shows "),
    (GOSSIP | {"participation": {"clients": 8, "cohort": 3}}, "participation.cohort: 3 is for reports to a server"),
    (GOSSIP | {"participation": {"clients": 8, "late": {}}}, "participation.late is for reports to a server"),
    (GOSSIP | {"participation": CROWD | {"late": {}, "deadline_s": 1, "cohort": 3}}, "participation.cohort: 3 is"),
    (GOSSIP | {"participation": {"clients": 8, "mode": "stream"}}, "expected participation.mode: rounds, or leave top"),
    (GOSSIP | {"lag": {"snapshot_after_bytes": "snapshot"}}, f"lag is for snapshots from a server{NO_SERVER}; leave l"),
    (GOSSIP | {"secure_aggregation": {}}, f"secure_aggregation adds up what a server is sent{NO_SERVER}; leave secure"),
    (GOSSIP | {"privacy": NOISE}, f"privacy accounts for what a server commits{NO_SERVER}; leave privacy or topology "),
    (GOSSIP | {"seed_shift": True}, f"seed_shift shifts the seeds that a server sends{NO_SERVER}; leave seed_shift or"),
    (GOSSIP | {"verify_every": 2}, f"verify_every: 2 compares what clients show a server{NO_SERVER}; leave verify_eve"),
    (GOSSIP | {"clock": "wall"}, "topology runs in simulated time, and clock: wall runs in real time"),
    (GOSSIP | COLLUDING, f"faults.0 falsifies reports to a server{NO_SERVER}"),
    (GOSSIP | {"faults": [{"fault": "byzantine", "attack": "sign-flip"}]}, "faults.0 falsifies answers to a server, a"),
    (GOSSIP | {"faults": [{"fault": "server-crash", "at_round": 3}]}, f"faults.0 crashes a server{NO_SERVER}"),
    (GOSSIP | {"faults": [CRASH | {"returns": "without-state"}]}, "expected faults.0.returns: with-state, or leave to"),
    (GOSSIP | {"faults": [{"fault": "drop", "kind": "report"}]}, "faults.0.kind: report is for messages of a server a"),
    (GOSSIP | {"faults": [{"fault": "drop", "direction": "up"}]}, "faults.0.direction: up is for clients of a server"),
    (GOSSIP | {"network": {"shared_up_mbps": 1}}, "network.shared_up_mbps: 1.0 is the speed of a server's link"),
    (
        GOSSIP | {"expect": {key: {"at_least": 0} for key in ("late_share", "heard_share", "bytes_down")}},
        f"expect.bytes_down is of reports to a server{NO_SERVER}; leave expect.bytes_down or topology out",
    ),
    (GOSSIP | {"expect": {"bytes": {"at_most": 9}, "staleness_p95": {"at_most": 1}}}, "expect.staleness_p95 is of rep"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_what_does_not_go_together_is_refused_with_both_reasons(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        Scenario(**SMALL | changes)
    (said,) = refused.value.problems
    assert sentence in said or re.search(sentence, said), said


def test_parts_that_go_together_have_nothing_against_each_other() -> None:
    for changes in (MASKED, PRIVATE, SECRET, GOSSIP, MASKED | {"privacy": NOISE | {"mechanism": "distributed"}}):
        assert objection(Scenario(**SMALL | changes)) is None


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_refused_names_both_parts(seed: int) -> None:
    """That what is accepted runs is what `seedbus stress` tries."""
    choose = Chooser(seed, "objections")
    for _ in range(5):
        try:
            Scenario.model_validate(any_document(choose, seed))
        except ValidationError as error:
            found = error.errors()[0].get("ctx", {}).get("error")
            if isinstance(found, Objection):
                parts = [each.subject for each in (found.needer, found.other) if each is not None]
                assert all(part in str(found) for part in parts) and ("expected" in str(found) or "out" in str(found))


def test_what_is_said_to_be_accepted_is() -> None:
    said = str(refusal({"algorithm": {"name": "hiso"}, "participation": CROWD, "secure_aggregation": {}}))
    for name in ("decomfl", "fedscalar-shared"):
        assert name in said
        Scenario(**SMALL | MASKED | {"algorithm": WHOLE | {"name": name}})
    Scenario(**SMALL | MASKED | {"algorithm": UNITS})


def refusal(changes: dict[str, Any]) -> ScenarioError:
    with pytest.raises(ScenarioError) as refused:
        Scenario(**SMALL | changes)
    return refused.value


def test_the_page_has_what_the_parts_state_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == combinations_page.page(), "run `make docs`"
