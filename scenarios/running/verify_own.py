"""Compare a run's journal with what the owner of a client has kept of it: terms, rounds, models, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import StoredRound
from seedbus.bus.text import counted
from seedbus.models.errors import DataError
from seedbus.scenarios.consent.own_record import REPORT, Answer, OwnRecord, read_record
from seedbus.scenarios.consent.terms import different
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.run_folder import scenario_of
from seedbus.scenarios.running.replay import replay

MOST_TOLD = 20


@dataclass(frozen=True)
class OwnView:
    """What an owner can say of a run.

    Attributes:
        differences: in what the journal contradicts her, in sentences.
        told: what her reports have cost, in sentences.
        unchecked: why no model was compared; "": one was.
    """

    differences: Sequence[str]
    told: Sequence[str]
    unchecked: str = ""


def verify_own(own: Path, run: Path | None = None) -> OwnView:
    """Return what the record in an owner's folder says, of itself or of a run's journal.

    Args:
        own: the owner's folder.
        run: the run's; None: there is no journal at hand.

    Raises:
        RunFolderError: one of the folders cannot be read.
        JournalDamaged: the journal is damaged.
        ScenarioError: a scenario needs what this installation does not have.
    """
    kept = read_record(own)
    if run is None:
        return OwnView([], _told(kept, []), "there is no journal")
    scenario = scenario_of(run)
    with closing(Journal.open(run, for_writing=False)) as journal:
        journal.checkpoint()  # verifies all of the journal
        rounds = list(journal.rounds())
    differences = [
        f"terms: {field} is {theirs} in the journal, and this client joined with {joined}"
        for terms in kept.scenarios[-1:]
        for field, theirs, joined in different(scenario, terms)
    ]
    differences += [each for answer in kept.answers if (each := _contradiction(answer, rounds))]
    if not differences:
        model, unchecked = _models(run, kept.answers)
        differences += [model] if model else []
    else:
        unchecked = "the journal is of another run"
    return OwnView(differences[:MOST_TOLD], _told(kept, rounds), unchecked)


def _told(kept: OwnRecord, rounds: Sequence[StoredRound]) -> list[str]:
    """Return what each client's reports have cost, by the terms that its owner joined with."""
    sent: dict[int, set[int]] = {}
    for answer in kept.answers:
        sent.setdefault(answer.client, set())
        if answer.answer == REPORT:
            sent[answer.client].add(answer.round)
    told = []
    for client, numbers in sorted(sent.items()):
        by_journal = [each.round for each in rounds if client in each.reported and each.commit is not None]
        of_them = f", of which {len(by_journal):,} are in commits of the journal" if rounds else ""
        told.append(f"client {client}: {counted(len(numbers), 'report')} left this process{of_them}")
        for feature in kept.scenarios[-1].features:
            told += [f"client {client}: {each}" for each in feature.spent_by(client, len(numbers), rounds)]
    return told


def _contradiction(answer: Answer, rounds: Sequence[StoredRound]) -> str:
    """Return in what a journal contradicts an answer that was given; "": in nothing."""
    number, client = answer.round, answer.client
    if number >= len(rounds):
        return f"round {number}: it asked client {client}, and the journal ends after {counted(len(rounds), 'round')}"
    if client not in rounds[number].cohort:
        return f"round {number}: it asked client {client}, which the journal's cohort has not"
    before = rounds[number - 1].version if number else 0
    if answer.version != before:
        return f"round {number}: it had client {client} work at version {answer.version}, and the journal at {before}"
    if answer.answer != REPORT and client in rounds[number].reported:
        return f"round {number}: client {client} declined ({answer.answer}), and the journal has its report"
    return ""


def _models(run: Path, answers: Sequence[Answer]) -> tuple[str, str]:
    """Return at which version a client was given another model than the journal makes, and why none was compared."""
    with closing(Journal.open(run, for_writing=False)) as journal:
        base = journal.base()
    first_kept = 0 if base is None else base.round
    in_order = sorted((each for each in answers if each.round >= first_kept), key=lambda answer: answer.round)
    if answers and not in_order:
        return "", f"the commits of rounds 0 to {first_kept - 1:,} were pruned, and this client answered in none later"

    def differs(answer: Answer) -> bool:
        return replay(run, answer.round).digest != answer.model

    try:
        if not in_order or not differs(in_order[-1]):
            return "", ""
        low, high = 0, len(in_order) - 1  # models that differ once differ ever after
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if differs(in_order[middle]) else (middle + 1, high)
    except (DataError, ScenarioError, RunFolderError) as error:
        return "", str(error)
    first = in_order[low]
    what = f"version {first.version}: the journal's commits make {replay(run, first.round).digest}"
    return f"{what}, and client {first.client} was brought to {first.model} in round {first.round}", ""
