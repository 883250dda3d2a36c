"""Report on a run that has ended: its results, judged by what the scenario expects, and its page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.agents.launcher import Outcome
from seedbus.bus import ledger_hash, read_ledger
from seedbus.bus.errors import LedgerDamaged
from seedbus.bus.ledger import MESSAGES, Columns
from seedbus.scenarios.extras import missing
from seedbus.scenarios.reporting.accounting import account, verified
from seedbus.scenarios.reporting.client_groups import devices_of, figures, groups_of
from seedbus.scenarios.reporting.client_names import stored
from seedbus.scenarios.reporting.findings import kept
from seedbus.scenarios.reporting.liars import liars
from seedbus.scenarios.reporting.page import PAGE, Finished, page, write_page
from seedbus.scenarios.reporting.results import Results, strict, write
from seedbus.scenarios.reporting.results_digest import WARNING, keep, written
from seedbus.scenarios.reporting.round_table import RoundTable
from seedbus.scenarios.reporting.run_facts import versions
from seedbus.scenarios.reporting.shortcomings import shortcomings
from seedbus.scenarios.reporting.statistics import ArrivedReports, Table, clients_table, describe, replay_time
from seedbus.scenarios.run_folder import RESULTS, device_of, resuming, writable
from seedbus.scenarios.schema.expectations import judged
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.versions import processor, version


class Process(NamedTuple):
    """What only the process that made a run knows, as fields of `results.json`.

    Attributes:
        wall_s: real seconds since the run was started or resumed.
        cpu_s: processor seconds since then.
        was_resumed: whether the run had closed rounds before.
    """

    wall_s: float
    cpu_s: float
    was_resumed: bool


def report(
    scenario: Scenario,
    folder: Path,
    given: Path,
    journal: Journal,
    outcome: Outcome,
    process: Process,
    *,
    has_page: bool,
    client_names: Sequence[str] = (),
) -> Results:
    """Write `results.json` and the page of a run that has ended.

    Args:
        scenario: the run's scenario.
        folder: the run's folder, with the ledger's files.
        given: the folder as it was given, which the summary names.
        journal: the run's rounds and evaluations.
        outcome: how the run ended.
        process: what only this process knows.
        has_page: whether the page is written, if plotly is installed, which draws its plots.
        client_names: the names of clients 0, 1, …; none if they have no names.

    Raises:
        LedgerDamaged: files of the ledger are missing or damaged.
        RunFolderError: the files cannot be written.
    """
    found = recomputed(scenario, folder, given, journal, outcome, client_names)
    # figures that are not finite become null, as in the files by which a finished run can be judged again
    summary = {
        **found.summary,
        "expectations": judged(scenario.expect, found.summary, [strict(line) for line in found.lines]),
        **process._asdict(),
        "seedbus": version("seedbus"),
        "versions": dict(versions()),
        "processor": processor(),
    }
    with writable(folder):
        if has_page and missing("plotly") is None:
            write(folder / PAGE, page(Finished.found(scenario, summary, *found[1:], kept(folder))))
        text = _text(summary)
        keep(folder, journal, summary, text)
        write(folder / RESULTS, text)
    return Results(folder, summary)


class Found(NamedTuple):
    """What follows from a run's scenario, its journal and its ledger.

    Attributes:
        summary: the fields of `results.json`, without those that only the running process knows.
        lines: the evaluations, oldest first.
        columns: the ledger.
        rounds: all rounds.
        arrived: the reports that arrived.
        clients: the columns of `statistics.clients_table`.
    """

    summary: dict[str, Any]
    lines: list[dict[str, Any]]
    columns: Columns
    rounds: RoundTable
    arrived: ArrivedReports
    clients: Table


def recomputed(
    scenario: Scenario,
    folder: Path,
    given: Path,
    journal: Journal,
    outcome: Outcome,
    client_names: Sequence[str] = (),
) -> Found:
    """Compute what a run's results say, from its scenario, its journal and its ledger.

    Args:
        scenario, folder, given, journal, outcome, client_names: see `report`.

    Raises:
        LedgerDamaged, JournalDamaged: files of the ledger are missing or damaged, or the journal is.
    """
    lines, columns = journal.metrics(), _messages(folder / MESSAGES, journal)
    with journal.decoding():
        rounds = RoundTable.of(journal.rounds(), scenario.participation.clients)
    facts, arrived = journal.facts(), ArrivedReports(columns, rounds)
    clients = clients_table(columns, rounds, arrived, replay_time(scenario.compute, scenario.seed))
    summary = _summary(scenario, given, columns, lines, outcome)
    summary = strict(summary | describe(rounds, arrived, clients, outcome.simulated_s))
    if groups := groups_of(scenario, facts):
        summary["groups"] = figures(groups, clients)
    if false := liars(scenario, rounds):
        summary["liars"] = false
    summary["device"] = device_of(journal)
    if client_names:
        summary["client_names"] = stored(client_names)
    if devices := devices_of(scenario, facts):
        summary["client_devices"] = devices
    return Found(summary, lines, columns, rounds, arrived, clients)


def judge_again(results: Results, scenario: Scenario) -> Results:
    """Judge a finished run by a scenario's current expectations.

    `results.json` and the page are written again if the verdicts differ.

    Raises:
        RunFolderError: the file cannot be written, or it or `metrics.jsonl` is not what the run wrote.
    """
    if results.is_changed:
        what = f"{results.warning}; delete {RESULTS}, and `{resuming(results.folder)}` writes both again"
        raise RunFolderError(results.folder, what)
    expectations = judged(scenario.expect, results.summary, results.lines if scenario.expect else [])
    if expectations == results.expectations:
        return results
    summary = results.summary | {"expectations": expectations}
    text = _text({name: value for name, value in summary.items() if name != WARNING})
    with closing(Journal.open(results.folder)) as journal, writable(results.folder):
        if written(journal):  # a digest of what nobody vouches for would vouch for it
            keep(results.folder, journal, summary, text)
    again = Results(results.folder, summary)
    with writable(results.folder):
        if (results.folder / PAGE).exists():
            write_page(again)
        write(results.folder / RESULTS, text)
    return again


def _text(summary: dict[str, Any]) -> bytes:
    return json.dumps(summary, indent=2).encode()


def _summary(
    scenario: Scenario, given: Path, columns: Columns, lines: list[dict[str, Any]], outcome: Outcome
) -> dict[str, Any]:
    names = [fault["fault"] for fault in scenario.resolved()["faults"]]
    last = {name: value for name, value in lines[-1].items() if name not in ("bytes_up", "bytes_down")} if lines else {}
    own = {name: value for feature in scenario.features for name, value in feature.summary().items()}
    return {
        "run": str(given),
        "scenario": scenario.name,
        "algorithm": scenario.resolved()["algorithm"]["name"],
        "reason": outcome.reason,
        "training_diverged": outcome.training_diverged,
        "shortcomings": shortcomings(lines, outcome.version, scenario.task.rising),
        "rounds": outcome.rounds,
        "version": outcome.version,
        "dimension": scenario.dimension,
        "digest": outcome.digest,
        "digests": outcome.digests,
        "verified": verified(columns),
        "ledger_hash": ledger_hash(columns),
        "metrics": last,
        **own,
        "clock": scenario.clock,
        "simulated_s": outcome.simulated_s,
        "traffic": account(columns, scenario, outcome.rounds, scenario.dimension, outcome.simulated_s),
        "refusals": outcome.refusals,
        "refusal_details": dict(sorted(outcome.refusal_details.items())),  # a resumed run counts in another order
        "faults": [{"fault": name} | did for name, did in zip(names, outcome.faults, strict=True)],
    }


def _messages(folder: Path, journal: Journal) -> Columns:
    """All rows of the ledger. Raises `LedgerDamaged` if the journal knows of more files than there are."""
    segments, found = journal.segments(), len(list(folder.glob("*.parquet")))
    if found < segments:
        raise LedgerDamaged(str(folder), f"{found} of its {segments} segments are there")
    return read_ledger(folder)
