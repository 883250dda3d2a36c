"""Short whole runs, and the comparison of how they end."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from seedbus.agents.observer import NullObserver
from seedbus.agents.round_record import ClosedRound
from seedbus.bus.files import temporary_folder
from seedbus.scenarios.errors import Interrupted
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.check.promises import require

End = tuple[dict[str, Any], str]
"""A run's summary without what no two runs share, and the text of its metrics."""

HERE = Placement()
ONE_WORKER = Placement("ipc", workers=1)
TWO_WORKERS = Placement("ipc", workers=2)
_OF_ONE_RUN = ("run", "wall_s", "cpu_s", "was_resumed")
_INTERRUPTED_AFTER = 4


def world(**changes: Any) -> Scenario:
    """Return a scenario: a quadratic of 300 coordinates, eight clients, three a round, twelve rounds, verified."""
    document: dict[str, Any] = {
        "name": "conformance",
        "task": {"name": "quadratic", "dimension": 300},
        "algorithm": {"name": "decomfl", "perturbations": 3, "learning_rate": 0.01},
        "participation": {"clients": 8, "cohort": 3},
        "network": {"latency": {"distribution": "lognormal", "median": 0.1, "sigma": 1.0}},
        "evaluation": {"every": 4},
        "stop": {"rounds": 12},
        "verify": True,
    }
    return validate(document | changes, "a run of the checks")


class _Interruption(NullObserver):
    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        if closed.round == _INTERRUPTED_AFTER:
            raise KeyboardInterrupt


def ended(what: Scenario, placement: Placement = HERE, *, interrupted: bool = False) -> End:
    """Run a scenario in a folder of its own and return how it ends; interrupted: in two pieces."""
    return _ended(json.dumps(what.resolved()), placement, interrupted)


@lru_cache(maxsize=128)
def _ended(text: str, placement: Placement, interrupted: bool) -> End:
    what = validate(json.loads(text), "a run of the checks")
    with temporary_folder() as own:
        folder = own / "run"
        if interrupted:
            try:
                run(what, folder, observer=_Interruption())
            except Interrupted:
                pass
            else:
                raise AssertionError(f"the run ended before round {_INTERRUPTED_AFTER}")
        results = run(what, folder, placement=placement, resume=interrupted, progress=False)
        return end_of(results.summary), (results.folder / "metrics.jsonl").read_text()


def end_of(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a summary that are equal in two equal runs."""
    same = {name: value for name, value in summary.items() if name not in _OF_ONE_RUN}
    # a process that reconnects sends a JOIN again, and a wire carries the scenario's text
    same["traffic"] = {name: value for name, value in same["traffic"].items() if name not in ("transport", "wire")}
    return same


def require_no_divergence(end: End) -> None:
    """Raise AssertionError if a replica of a verified run diverged, or if the run made no commit."""
    summary = end[0]
    require(summary["version"] > 0, f"no round of {summary['rounds']} made a commit; refused: {summary['refusals']}")
    require("diverged" not in summary["refusals"], f"refused: {summary['refusals']}")


def require_equal_ends(found: End, expected: End, how: str, otherwise: str) -> None:
    """Raise AssertionError unless two runs ended alike; how, otherwise: what differs between them."""
    for name, value in expected[0].items():
        if found[0].get(name) != value:
            raise AssertionError(f"{name} is {found[0].get(name)!r:.80} {how}, and {value!r:.80} {otherwise}")
    require(found[1] == expected[1], f"the metrics {how} are not those {otherwise}")
