"""A run of any kind ends alike on every transport, in two processes, and wherever it is cut off and resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from availability_scenarios import FAULTS, availability_scenario
from power_cuts import PowerCut, cut_power, run_with_power_cuts
from run_worlds import (
    CRASH_PHASES,
    CROWD,
    HALF,
    MASKABLE,
    POLICIES,
    STREAMS,
    crashing,
    robust,
    secure,
    stream,
    with_policy,
)
from snapshot_cases import rough
from worlds import BARE, DECOMFL, HISO, lossy, outcome, scenario

from seedbus.agents.journal.journal import Journal
from seedbus.agents.server.arrivals import Arrivals
from seedbus.agents.server.coordinator import Coordinator
from seedbus.agents.server.rounds import Rounds
from seedbus.agents.server.server import Server
from seedbus.bus import Bus, Ledger
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

INTEGER: dict[str, Any] = DECOMFL | {"momentum": 0.0, "arithmetic": "integer"}
POOL: dict[str, Any] = {"name": "fedkseed", "pool": 64, "perturbations": 5, "learning_rate": 0.01}
UNITS: dict[str, Any] = {"name": "fedavg", "local_steps": 2, "learning_rate": 0.05, "compression": "fixed-point"}
UNITS |= {"weighting": "uniform"}
SCAFFOLD: dict[str, Any] = {"name": "scaffold", "learning_rate": 0.05, "local_steps": 2}
LOSSES = [{"fault": "drop", "probability": 0.05}]
TROUBLE: list[dict[str, Any]] = [
    {"fault": "drop", "probability": 0.15},
    {"fault": "duplicate", "probability": 0.3},
    {"fault": "delay", "probability": 0.3, "by": 0.7},
]
COMINGS: dict[str, dict[str, Any]] = {
    "late": {"late": {}},
    "buffer": {"late": {}, "buffer": 2},
    "over-selection": {"over_selection": 2.0},
    "rarest": {"selection": {"policy": "rarest"}},
}
CHEAPEST = {"snapshot_after_commits": None, "snapshot_after_bytes": "snapshot", "chunk_bytes": 128}
POISSON: dict[str, Any] = {"clients": 8, "cohort": 2, "selection": {"policy": "poisson"}}


def masked(**changes: Any) -> Scenario:
    pytest.importorskip("cryptography", reason="secure aggregation needs cryptography: pip install 'seedbus[secure]'")
    hurried = CROWD | {"deadline_s": 2.0}
    return secure({"neighbours": 4} | HALF, **({"faults": LOSSES, "participation": hurried} | changes))


def coming(policy: str) -> Scenario:
    """Return a scenario in which clients come and go while a policy counts late reports, or chooses among them."""
    name = "all at once" if policy == "buffer" else "churn without a word" if policy == "late" else "churn"
    participation = {"clients": 8, "cohort": 3, "deadline_s": 0.5} | COMINGS[policy]
    return availability_scenario(name, algorithm=DECOMFL, participation=participation)


def remembering(algorithm: dict[str, Any], faults: list[dict[str, Any]]) -> Scenario:
    """Return a scenario whose clients keep what they remember on the disk."""
    participation = {"clients": 6, "cohort": 4, "deadline_s": 0.4}
    return scenario(algorithm=algorithm, participation=participation, faults=faults, stop={"rounds": 12})


def cheapest() -> Scenario:
    """Return a scenario in which a snapshot takes as many bytes as ten or twenty commits, and clients miss fifteen."""
    participation = {"clients": 30, "cohort": 2, "deadline_s": 1.0, "late": {"max_staleness": 3}}
    task = {"name": "quadratic", "dimension": 24}
    return rough(0.2, lag=CHEAPEST, task=task, participation=participation, stop={"rounds": 120}, verify=False)


def late_vectors(name: str, participation: dict[str, Any]) -> Scenario:
    slow = {"latency": {"distribution": "lognormal", "median": 0.2, "sigma": 1.0}}
    crowd = {"clients": 8, "late": {"discount": 0.5}} | participation
    return scenario(algorithm={"name": name, "local_steps": 2}, participation=crowd, network=slow)


def private(settings: dict[str, Any], make: Callable[..., Scenario] = scenario, **changes: Any) -> Scenario:
    pytest.importorskip("dp_accounting", reason="privacy needs dp-accounting: pip install 'seedbus[privacy]'")
    privacy = {"clip": 100_000, "noise_multiplier": 1.5} | settings
    return make(**({"algorithm": MASKABLE, "privacy": privacy, "stop": {"rounds": 8}} | changes))


WORLDS: dict[str, Callable[[], Scenario]] = {
    **{name: partial(availability_scenario, name) for name in FAULTS},
    **{f"policy {name}": partial(with_policy, name) for name in POLICIES},
    **{f"stream of {name}": partial(stream, name) for name in STREAMS},
    **{f"server away while {phase}": partial(crashing, phase) for phase in CRASH_PHASES},
    **{f"comings and {policy}": partial(coming, policy) for policy in COMINGS},
    "memories": partial(remembering, SCAFFOLD, [*TROUBLE, BARE]),
    "memories that are lost": partial(remembering, {"name": "feddc", "local_steps": 2}, [BARE]),
    "late vectors": partial(late_vectors, "fedcm", {"cohort": 4, "deadline_s": 0.5}),
    "buffered vectors": partial(late_vectors, "scaffold", {"cohort": 5, "deadline_s": 3.0, "buffer": 2}),
    "cheapest snapshots": cheapest,
    "plain": partial(lossy, algorithm=HISO),
    "robust": robust,
    "snapshots of peers": partial(rough, 0.2, algorithm=DECOMFL, lag={"source": "peer"}),
    "snapshots of the evaluator": partial(rough, 0.2, algorithm=HISO, lag={"source": "evaluator"}),
    "sums": partial(rough, 0.1, algorithm=INTEGER | {"aggregation": "clipped"}, lag={"source": "peer"}),
    "a pool": partial(rough, 0.2, algorithm=POOL, stop={"rounds": 12}),
    "masks": partial(masked, stop={"rounds": 8}),
    "noise": partial(private, {}, participation=CROWD, faults=LOSSES),
    "noise in shares": partial(private, {"mechanism": "distributed"}, masked, algorithm=UNITS),
    "secret cohorts": partial(private, {"cohorts": "secret"}, participation=POISSON, faults=[], seed=1),
}
ANEW = ("masks", "noise in shares")
"""Who is asked again after a cut answers with other keys, of other lengths."""
POINTS: list[tuple[type, str]] = [
    (Journal, "append"),
    (Bus, "_depart"),
    (Bus, "_send_answer"),
    (Coordinator, "handle"),
    (Rounds, "close"),
    (Server, "_publish"),
    (Bus, "wake"),
    (Arrivals, "joined"),
]
IN_TWO = (
    "all at once",
    "policy everything",
    "policy buffer",
    "stream of fedkseed",
    "sums",
    "a pool",
    "noise",
    "snapshots of peers",
    "buffered vectors",
    *ANEW,
)


class Whole(NamedTuple):
    """A run in one piece, in memory, and how often it called each method of `POINTS`."""

    results: Results
    calls: Counter[str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Whole]:
    folder, made = tmp_path_factory.mktemp("whole"), dict[str, Whole]()

    def of(name: str) -> Whole:
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                calls = Counter[str]()
                for owner, method in POINTS:
                    patch.setattr(owner, method, _counted(getattr(owner, method), method, calls))
                made[name] = Whole(run(WORLDS[name](), folder / str(len(made))), calls)
        return made[name]

    return of


def _counted(original: Any, name: str, calls: Counter[str]) -> Any:
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return original(self, *arguments, **options)

    return method


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.few(4)
def test_it_makes_commits_that_replay_to_its_model_and_nobody_diverges(
    whole: Callable[[str], Whole], name: str
) -> None:
    results = whole(name).results
    assert results.summary["version"] > 0 and "diverged" not in results.summary["refusals"]
    assert replay(results.folder).digest == results.digest


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("name", "transport"), [(name, ("inproc", "ipc", "tcp")[at % 3]) for at, name in enumerate(WORLDS)]
)
def test_it_ends_alike_on_every_transport(
    tmp_path: Path, whole: Callable[[str], Whole], name: str, transport: Any
) -> None:
    assert outcome(run(WORLDS[name](), tmp_path / "run", placement=Placement(transport))) == outcome(
        whole(name).results
    )


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("name", IN_TWO)
def test_it_ends_alike_in_two_processes(tmp_path: Path, whole: Callable[[str], Whole], name: str) -> None:
    assert outcome(run(WORLDS[name](), tmp_path / "run", placement=Placement("tcp", 2))) == outcome(whole(name).results)


def require_equal(name: str, found: Results, expected: Results) -> None:
    if name in ANEW:
        assert (found.digest, found.summary["version"]) == (expected.digest, expected.summary["version"])
        assert [line.get("epsilon") for line in found.lines] == [line.get("epsilon") for line in expected.lines]
    else:
        assert outcome(found) == outcome(expected)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", WORLDS)
def test_it_ends_alike_if_it_is_cut_off_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[str], Whole], name: str
) -> None:
    rounds = whole(name).results.summary["rounds"]
    lives = [(max(2, rounds // 8), True), (max(3, rounds // 5), False)]
    results, cuts = run_with_power_cuts(WORLDS[name](), tmp_path / "cut", monkeypatch, lives)
    assert cuts > 2
    require_equal(name, results, whole(name).results)


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("name", "point", "share", "before"),
    [
        (name, (at + more) % len(POINTS), (0.3, 0.62, 0.95)[(at + more) % 3], (at + more) // 2 % 2 == 0)
        for at, name in enumerate(WORLDS)
        for more in ((0,) if at > 10 else (0, 3))
    ],
)
def test_it_ends_alike_if_it_is_cut_off_wherever(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whole: Callable[[str], Whole],
    name: str,
    point: int,
    share: float,
    before: bool,
) -> None:
    """At a share of the calls of a method, or of the rounds that are stored if the run never calls it."""
    monkeypatch.setattr("seedbus.agents.launcher.Ledger", partial(Ledger, segment_rows=40))
    owner, method = POINTS[point] if whole(name).calls[POINTS[point][1]] else POINTS[0]
    at = max(1, int(share * whole(name).calls[method]))
    with monkeypatch.context() as patch, pytest.raises(PowerCut):
        cut_power(patch, owner, method, at, before=before or method == "joined")  # which ends in an error, too
        patch.setattr("seedbus.agents.launcher._ServerRun.tidy", lambda self: None)
        run(WORLDS[name](), tmp_path / "cut")
    require_equal(name, run(WORLDS[name](), tmp_path / "cut", resume=True), whole(name).results)
