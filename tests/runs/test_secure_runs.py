"""Whole runs with secure aggregation: the bits are those of the run without it, whoever drops out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from masked_round import DropUnmask, lie_of_shares
from run_worlds import CROWD, HALF, MASKABLE, secure
from snapshot_cases import lagging

from seedbus.agents.client.forging import Occasion
from seedbus.agents.secure import party
from seedbus.agents.secure.settings import SecureAggregation
from seedbus.agents.secure.stages import ORDER, Stage
from seedbus.algorithms.contract import Declined
from seedbus.bus import PASS, Envelope, KeyedRandom, Kind, Passage, Verdict, encode
from seedbus.plugin import register
from seedbus.scenarios.faults.base import RoundSelector
from seedbus.scenarios.faults.delay import Delay
from seedbus.scenarios.faults.drop import Drop
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario

DENSE: dict[str, Any] = {
    "name": "fedacg",
    "local_steps": 2,
    "learning_rate": 0.05,
    "compression": "fixed-point",
    "weighting": "uniform",
}


def without(what: Scenario) -> Scenario:
    return what.model_copy(update={"secure_aggregation": None})


def bytes_of(results: Results) -> dict[str, int]:
    return {kind: each["bytes"] for kind, each in results.summary["traffic"]["by_kind"].items()}


class DropConfirmation(Drop):
    """Lose the confirmations of who has reported: these clients vanish after they have sent their masked reports."""

    def judge(self, passage: Passage) -> Verdict:
        is_confirming = passage.kind is Kind.TELL and passage.occurrence == ORDER.index(Stage.CONFIRM)
        return super().judge(passage) if is_confirming else PASS


class DelayShares(Delay):
    """Delay the answers with which clients share their secrets."""

    def judge(self, passage: Passage) -> Verdict:
        is_sharing = passage.kind is Kind.TELL and passage.occurrence == ORDER.index(Stage.SHARES)
        return super().judge(passage) if is_sharing else PASS


@pytest.mark.parametrize(
    "coarse", [{"learning_rate": 1e4, "unit_bits": 20}, {"learning_rate": 10.0, "unit_bits": 22}], ids=["step", "sum"]
)
def test_a_client_whose_numbers_are_too_large_does_not_tell_the_server_how_large(
    tmp_path: Path, coarse: dict[str, Any]
) -> None:
    results = run(secure(algorithm=MASKABLE | coarse, stop={"rounds": 2}), tmp_path / "run")
    sentence = "a number is too large: 268435455 units are the most of which a cohort's sum fits into 32 bits"
    assert results.summary["refusals"]["overflow"]
    assert results.summary["refusal_details"] == {"overflow": f"{sentence}; a smaller unit_bits has a larger unit"}


def test_an_update_that_is_not_finite_is_declined_in_the_words_of_one_that_is_too_large(tmp_path: Path) -> None:
    results = run(secure(algorithm=DENSE | {"learning_rate": 1e30}, stop={"rounds": 2}), tmp_path / "run")
    (told,) = results.summary["refusal_details"].values()
    assert results.summary["version"] == 0 and told.startswith("a number is too large: 268435455 units are the most")


SEEN: dict[int, list[Any]] = {}


class Early(RoundSelector):
    """Report before plans are sent, and refuse to share the keys of masks, or the shares of secrets."""

    fault: Literal["early"] = "early"
    stage: int

    @property
    def may_lose(self) -> bool:
        return False

    def forges(self, client: int, round: int, random: KeyedRandom) -> bool:
        return self.strikes_client(client, round, random)

    def forge(self, occasion: Occasion, random: KeyedRandom) -> list[bytes] | None:
        asked = occasion.asked
        if asked.kind is Kind.PLAN:
            SEEN[asked.client] = occasion.answers[0].body
        is_struck = asked.kind is Kind.ASK and asked.body[0] == self.stage and asked.client in SEEN
        if not is_struck or not self.forges(asked.client, asked.round, random):
            return None
        report = Envelope(Kind.REPORT, asked.client, asked.round, asked.base, SEEN[asked.client])
        refusal = Envelope(Kind.TELL, asked.client, asked.round, asked.base, [self.stage, "no-masks", "no"])
        return [encode(each)[0] for each in (refusal, *[report] * 8)]


FAULTS: dict[str, list[Any]] = {
    "nobody": [],
    "after sharing": [{"fault": "drop", "kind": "report", "clients": [1, 4]}],
    "after masking": [DropUnmask(clients=[2, 3])],
    "before confirming": [DropConfirmation(clients=[2, 3])],
    "at every step": [{"fault": "drop", "kind": "plan", "clients": [1]}, DropUnmask(probability=0.1)],
    "stragglers": [{"fault": "straggler", "clients": [0, 5, 7], "pause_s": 20.0}],
    "lag": [{"fault": "drop", "kind": "plan", "probability": 0.08}, {"fault": "duplicate", "probability": 0.2}],
    "a liar": [{"fault": "byzantine", "clients": [3], "attack": "scale", "by": 5.0}],
    "server away as it commits": [{"fault": "server-crash", "at_round": 2, "phase": "committing"}],
    "server away as it gathers": [{"fault": "server-crash", "at_round": 2, "phase": "gathering"}],
}


slow = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "algorithm"),
    [
        ("at every step", HALF, MASKABLE),
        ("nobody", {}, MASKABLE),
        ("after sharing", {"neighbours": 6}, MASKABLE),
        ("after masking", {}, MASKABLE),
        ("before confirming", {}, MASKABLE),
        ("stragglers", {"neighbours": 6}, MASKABLE),
        ("lag", {}, MASKABLE),
        ("a liar", {}, MASKABLE),
        ("server away as it commits", {}, MASKABLE),
        ("server away as it gathers", {}, MASKABLE),
        ("nobody", {}, DENSE),
        ("at every step", {"neighbours": 6} | HALF, DENSE),
        ("stragglers", {}, DENSE | {"name": "feddyn", "error_feedback": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else value.get("name", ""),
)
def test_the_model_has_the_bits_of_the_run_without_it(
    tmp_path: Path, name: str, settings: dict[str, Any], algorithm: dict[str, Any]
) -> None:
    crowd = CROWD | {"over_selection": 1.2} if name == "stragglers" else CROWD
    what = secure(settings, participation=crowd, stop={"rounds": 10}, algorithm=algorithm)
    # a fault that only this test knows cannot stand in a file
    faults = [fault if isinstance(fault, Drop) else secure(faults=[fault]).faults[0] for fault in FAULTS[name]]
    what = what.model_copy(update={"faults": faults})
    masked, plain = run(what, tmp_path / "masked"), run(without(what), tmp_path / "plain")
    assert masked.summary["version"] == plain.summary["version"] == 10
    assert masked.digest == plain.digest == replay(tmp_path / "masked").digest
    if name == "nobody":
        assert masked.summary["refusals"] == {}
    if not name.startswith(("straggler", "server")):
        assert bytes_of(masked)["report"] == bytes_of(plain)["report"]
    assert bytes_of(masked)["commit"] == bytes_of(plain)["commit"]


@slow
def test_clients_that_pull_snapshots_mask_too(tmp_path: Path) -> None:
    crowd = {"clients": 30, "cohort": 4, "quorum": 2}
    what = lagging(algorithm=MASKABLE, participation=crowd, stop={"rounds": 30})
    masked = what.model_copy(update={"secure_aggregation": secure().secure_aggregation})
    results = run(masked, tmp_path / "masked")
    assert results.digest == run(what, tmp_path / "plain").digest
    assert results.summary["traffic"]["by_kind"]["snapshot"]["messages"] > 50


def test_shares_that_come_after_the_plans_are_late_and_the_round_goes_on(tmp_path: Path) -> None:
    """A plan names the clients that have shared; the others' shares are of no use, though reports are still awaited."""
    what = secure(
        participation={"clients": 6, "quorum": 2, "deadline_s": 2.0},
        network={"latency": 0.4},
        stop={"rounds": 4},
    ).model_copy(update={"faults": [DelayShares(clients=[2], by=1.5)]})
    summary = run(what, tmp_path / "run").summary
    assert summary["version"] == 4 and summary["refusals"] == {"late": {"2": 4}}


@pytest.mark.slow
@pytest.mark.usefixtures("no_plugins")
@pytest.mark.parametrize("stage", [Stage.KEYS, Stage.SHARES])
def test_who_reports_without_a_share_in_the_masks_stops_nothing(tmp_path: Path, stage: Stage) -> None:
    register(Early)
    SEEN.clear()
    what = secure(
        participation={"clients": 6, "quorum": 2},
        faults=[{"fault": "early", "clients": [2], "stage": int(stage)}],
        network={"latency": {"distribution": "lognormal", "median": 0.05, "sigma": 0.5}},
        stop={"rounds": 6},
        verify=False,
    )
    summary = run(what, tmp_path / "run").summary
    assert summary["version"] == 6 and summary["refusals"]["not-asked"].keys() == {"2"}


def test_who_gives_false_shares_of_its_mask_key_and_vanishes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie_of_shares(monkeypatch, client=2)
    what = secure(
        participation={"clients": 6, "quorum": 2, "deadline_s": 60.0},
        faults=[{"fault": "dropout", "when": "after-training", "clients": [2]}],
        stop={"rounds": 3},
    )
    summary = run(what, tmp_path / "run").summary
    assert summary["version"] == 0 and summary["refusals"]["bad-shares"] == {"2": 3}


def test_who_stops_masking_is_named_and_the_sum_is_that_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = {"clients": 6, "quorum": 2, "deadline_s": 60.0}
    what = secure(algorithm=MASKABLE | {"perturbations": 30}, participation=crowd, stop={"rounds": 3})
    vanishes = [{"fault": "dropout", "when": "after-training", "clients": [2]}]
    others = run(what.model_copy(update={"faults": secure(faults=vanishes).faults}), tmp_path / "others")
    honest = party.Party.mask

    def mask(self: party.Party, client: int, round: int, numbers: Any, beside: Sequence[int] = ()) -> Any:
        masked = honest(self, client, round, numbers, beside)
        return numbers if client == 2 else masked

    assert run(what, tmp_path / "honest").summary["refusals"] == {}
    monkeypatch.setattr(party.Party, "mask", mask)
    bare = run(what, tmp_path / "bare")
    assert bare.summary["refusals"] == {"unmasked": {"2": 3}} and bare.summary["version"] == 3
    assert bare.digest == others.digest


def test_a_deadline_learns_how_long_reports_take_and_not_how_long_secrets_are_shared(tmp_path: Path) -> None:
    what = secure(
        participation={"clients": 4, "quorum": 2, "deadline_s": 60.0, "deadline": {"quantile": 1.0, "factor": 1.5}},
        network={"latency": 0.5},
        faults=[{"fault": "straggler", "clients": [0], "pause_s": 30.0, "at_round": 1}],
        stop={"rounds": 2},
    )
    # keys, shares, reports, confirmations and unmasking take 1 s each, there and back; the second reports 1.5 s
    assert run(what, tmp_path / "run").summary["simulated_s"] == pytest.approx(5 + 5.5)


def test_a_report_leaves_room_for_those_of_all_clients_where_a_cohort_may_be_all_of_them() -> None:
    crowd = {"clients": 8, "cohort": 2, "quorum": 2, "selection": {"policy": "poisson"}}
    masking = party.Party(SecureAggregation(), secure(participation=crowd, faults=[]).participation)
    with pytest.raises(Declined, match=f": {(2**31 - 1) // 8} units are the most of which"):
        masking.mask(0, 0, np.array([(2**31 - 1) // 8 + 1]))


@slow
@pytest.mark.parametrize("clients", [2, 3, 4])
def test_a_run_of_few_clients_ends_whatever_is_lost_at_whichever_stage(tmp_path: Path, clients: int) -> None:
    """A round that loses more than the threshold allows makes no commit; the next one may."""
    what = secure(
        participation={"clients": clients, "quorum": 2, "deadline_s": 2.0},
        faults=[{"fault": "drop", "probability": 0.08}, {"fault": "duplicate", "probability": 0.2, "copies": 2}],
        stop={"rounds": 25},
    )
    results = run(what, tmp_path / "run")
    assert results.summary["rounds"] == 25 and 0 < results.summary["version"] < 25
    assert results.digest == replay(tmp_path / "run").digest
    assert results.summary["refusals"].keys() <= {"late", "not-asked", "duplicate", "no-masks", "asks-for-both"}
