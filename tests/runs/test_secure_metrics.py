"""Owners measure the model under secure aggregation: the server learns sums over those that report, and no others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from masked_round import DropUnmask, lie_of_shares
from owners import SIZES, own_scenario, own_tables

from seedbus.agents.measuring.server import QUANTILES
from seedbus.agents.secure import party
from seedbus.agents.secure.numbers import BITS, sums_of, words
from seedbus.agents.secure.settings import LARGEST, SecureAggregation
from seedbus.algorithms.contract import Declined
from seedbus.bus import Envelope
from seedbus.scenarios.consent.sentences import consent
from seedbus.scenarios.faults.drop import Drop
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import MEMORY
from seedbus.scenarios.running import execute
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.explain.words import _evaluation as evaluation_words

WHOLE: dict[str, Any] = {
    "name": "decomfl",
    "learning_rate": 0.05,
    "perturbations": 3,
    "arithmetic": "integer",
    "precision": "int32",
}
DENSE: dict[str, Any] = {
    "name": "fedavg",
    "learning_rate": 0.1,
    "weighting": "uniform",
    "compression": "fixed-point",
}
CROWD: dict[str, Any] = {"clients": 3, "cohort": 3, "quorum": 2, "deadline_s": 60}
MASKED: dict[str, Any] = {"secure_aggregation": {"threshold": 0.5}}


@pytest.fixture
def owners(tmp_path: Path) -> Path:
    own_tables(tmp_path / "owners")
    return tmp_path / "owners"


def secure(**more: Any) -> Scenario:
    return load(own_scenario(**({"algorithm": WHOLE, "participation": CROWD} | MASKED | more)))


def go(what: Scenario, folder: Path, owners: Path, transport: str = "memory", workers: int = 0) -> Results:
    return run(what, folder, placement=Placement(transport, workers, own=str(owners / "*" / "*.csv")), page=False)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told(folder: Path) -> list[tuple[Any, ...]]:
    names = ("round", "version", "loss", "accuracy", "asked", "answered", "samples")
    return [tuple(line[name] for name in names) for line in lines_of(folder)]


@pytest.mark.parametrize("algorithm", [WHOLE, DENSE], ids=["decomfl", "fedavg"])
def test_sums_are_to_the_bit_those_of_clients_that_tell_them_one_by_one(
    algorithm: dict[str, Any], owners: Path, tmp_path: Path
) -> None:
    masked = go(secure(algorithm=algorithm), tmp_path / "masked", owners)
    plain = go(secure(algorithm=algorithm, secure_aggregation=None), tmp_path / "plain", owners)
    assert masked.digest == plain.digest
    *shared, last = told(tmp_path / "plain")
    assert told(tmp_path / "masked") == shared and last[1] == 5, "nobody measures the model of the last round"
    assert not any(f"loss.{end}" in line for line in lines_of(tmp_path / "masked") for end in QUANTILES)
    kinds = masked.summary["traffic"]["by_kind"]
    assert not {"measure", "measured"} & kinds.keys() and masked.summary["refusals"] == {}
    assert kinds["report"]["scalars"] == plain.summary["traffic"]["by_kind"]["report"]["scalars"]


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_processes_a_resumption_and_a_crash_of_the_server_tell_the_same(owners: Path, tmp_path: Path) -> None:
    whole = go(secure(), tmp_path / "whole", owners)
    assert go(secure(), tmp_path / "tcp", owners, "tcp", 2).digest == whole.digest
    go(secure(stop={"rounds": 2}), tmp_path / "part", owners)
    placement = Placement("memory", own=str(owners / "*" / "*.csv"))
    assert run(secure(), tmp_path / "part", resume=True, placement=placement, page=False).digest == whole.digest
    crash = [{"fault": "server-crash", "at_round": 2, "phase": "committing"}]
    assert go(secure(faults=crash), tmp_path / "crashed", owners).digest == whole.digest
    for name in ("tcp", "part", "crashed"):
        assert told(tmp_path / name) == told(tmp_path / "whole"), name


def test_a_rehearsal_has_the_lines_of_a_run_whose_reports_were_lost(owners: Path, tmp_path: Path) -> None:
    what = secure(faults=[{"fault": "drop", "kind": "report", "probability": 0.3}], stop={"rounds": 9})
    there = go(what, tmp_path / "there", owners)
    placement = Placement("memory", own=str(owners / "*" / "*.csv"))
    here = run(what, tmp_path / "here", placement=placement, page=False, as_run=tmp_path / "there")
    assert here.digest == there.digest and told(tmp_path / "here") == told(tmp_path / "there")
    assert {line["answered"] for line in lines_of(tmp_path / "here")} > {3}


@pytest.mark.parametrize(
    ("fault", "answering"), [(Drop(kind="report", clients=[1]), (0, 2)), (DropUnmask(clients=[1]), (0, 1, 2))]
)
def test_means_are_those_over_the_clients_whose_reports_are_in_the_sum(
    fault: Drop, answering: tuple[int, ...], owners: Path, tmp_path: Path
) -> None:
    go(secure().model_copy(update={"faults": [fault]}), tmp_path / "run", owners)
    own = {(line["client"], line["version"]): line for line in lines_of(tmp_path / "run" / MEMORY)}
    lines = lines_of(tmp_path / "run")
    assert [line["version"] for line in lines] == [0, 2, 4]
    for line in lines:
        each = [own[client, line["version"]] for client in answering]
        samples = sum(client["samples"] for client in each)
        assert (line["asked"], line["answered"], line["samples"]) == (3, len(answering), samples)
        assert line["loss"] == pytest.approx(sum(one["loss"] * one["samples"] for one in each) / samples, rel=1e-15)
    assert sum(round(0.2 * SIZES[client]) for client in answering) == lines[0]["samples"]


def test_who_lies_of_its_masks_is_named_and_no_line_is_made(
    owners: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie_of_shares(monkeypatch, client=2)
    faults = [{"fault": "dropout", "when": "after-training", "clients": [2]}]
    summary = go(secure(faults=faults, stop={"rounds": 2}), tmp_path / "run", owners).summary
    assert summary["refusals"]["bad-shares"] == {"2": 2} and lines_of(tmp_path / "run") == []


def test_who_tells_what_no_samples_have_leaves_no_line_and_stops_nothing(
    owners: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = party.Party.mask

    def mask(self: party.Party, client: int, round: int, numbers: Any, beside: Any = ()) -> Any:
        lie = [-(2**100)] * len(beside) if client == 1 and round == 2 else beside
        return honest(self, client, round, numbers, lie)

    monkeypatch.setattr(party.Party, "mask", mask)
    results = go(secure(), tmp_path / "run", owners)
    assert [line["version"] for line in lines_of(tmp_path / "run")] == [0, 4] and results.summary["version"] == 5
    assert "no sum of what clients measure is known" in (tmp_path / "run" / "log.jsonl").read_text()


@pytest.mark.parametrize("told_by_it", [[], [b""], [b"12345678"], [7]], ids=repr)
def test_a_report_without_what_is_told_beside_it_is_refused_by_its_client(
    told_by_it: list[Any], owners: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = party.Party.full

    def full(self: party.Party, report: Envelope) -> Envelope:
        return report._replace(body=[*report.body, *told_by_it]) if report.client == 1 else honest(self, report)

    monkeypatch.setattr(party.Party, "full", full)
    summary = go(secure(stop={"rounds": 3}), tmp_path / "run", owners).summary
    assert summary["refusals"]["bad-payload"]["1"] >= 2 and summary["version"] == 3
    assert [line["answered"] for line in lines_of(tmp_path / "run")] == [2, 2]


def test_a_server_that_asks_each_client_for_its_own_sums_gets_none(
    owners: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = execute._spec
    monkeypatch.setattr(execute, "_spec", lambda prepared: replace(honest(prepared), measures_in_sums=False))
    traffic = go(secure(stop={"rounds": 3}), tmp_path / "run", owners).summary["traffic"]["by_kind"]
    assert traffic["measure"]["messages"] and "measured" not in traffic
    assert lines_of(tmp_path / "run") == [] and '"kind": "MEASURE"' in (tmp_path / "run" / "log.jsonl").read_text()


def test_a_client_masks_one_set_of_numbers_beside_its_report() -> None:
    masking = party.Party(SecureAggregation(), secure().participation)
    masking._sessions[0] = party._Session(0)
    report = words([7], 3)
    masking.mask(0, 0, report, [1, 2])
    masking.mask(0, 0, report, [1, 2])
    with pytest.raises(Declined, match="client 0 is to mask another report in round 0"):
        masking.mask(0, 0, report, [1, 3])


@pytest.mark.parametrize("asked", [2, 3, 100, 10_000])
def test_words_of_all_clients_add_up_within_32_bits_to_the_numbers_sum(asked: int) -> None:
    most, least = 2 ** (BITS - 1) - 1, -(2 ** (BITS - 1))
    for number in (most, least, 0, -1, 1, 12345678901234567890):
        cut = words([number, 5], asked).astype(object)
        assert max(map(abs, cut)) * asked <= LARGEST
        assert sums_of(list(cut * asked), asked) == [number * asked, 5 * asked]


def test_owners_and_readers_of_a_scenario_are_told_of_sums_over_all_that_report() -> None:
    line = consent(secure())["evaluation"]
    assert "by the clients that report next" in line and "masks their number and the sums" in line
    plain = consent(secure(secure_aggregation=None))
    assert "by all clients" in plain["evaluation"] and "sends their number" in plain["evaluation"]
    said = " ".join(evaluation_words(secure()))
    assert "nobody measures the model of the last round" in said and "all clients that are there are asked" not in said
