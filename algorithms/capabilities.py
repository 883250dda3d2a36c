"""What an algorithm states of itself, and what follows for the other parts of a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seedbus.capabilities import Fact, Needs, RulesOut, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What holds of an algorithm with its settings. A subclass says what is different: `replace(super().facts, …)`.

    Attributes:
        label: its name, with the names of the methods that are combined with it.
        is_dense: whether a commit holds the whole replica. Then only the newest matters, and none depends on another.
        takes_late: whether late reports may enter a commit. They may not if directions depend on the replica's state,
            or if the step is not linear in Δ.
        is_order_free: whether any order and grouping of the same reports into commits lead to the same model, to the
            bit, and so `aggregate` takes None for the reports of its round.
        is_widened: whether `point` takes memory of its own, which an evaluation should not take.
        is_exact: whether x is an exact sum of commits.
        adds_up: whether reports are whole numbers (`Sums`), and `aggregate` takes their sum (`Total`), by `mean`.
        tracks_sums: whether clients remember what they report, as the server has it: then it may not be clipped there.
        law: the law of the directions that it draws, or its name; None if it draws none, so that no kernel is needed.
        has_round_seeds: whether each round has a seed of its own, to which a shift can be applied.
        is_comparable: whether all clients of a round have the same directions, so that a rule may compare their values.
        shares_work: whether `local_together` computes together what clients at one version have in common. Their
            reports are short, and are read together too.
        weighs_samples: whether a report counts by the number of its client's samples, which it then says.
        remembers: whether clients may have a memory.
        needs_outputs: whether local work uses the outputs of a network, and not only losses and gradients.
        needs_slopes: whether its field `estimator` asks for derivatives along directions (`objective.Sloped`).
        needs_factors: whether its field `forward` asks for losses by factors of directions (`objective.Factored`).
        needs_layers: whether `sized` takes the shapes of a network's parameters.
        knows_evaluations: whether `work` has the exact count of evaluations. It has not with epochs, whose number of
            steps only the clients know, nor where passes depend on the network.
        most_clients: the most clients that a run may have; None for any number.
        rule: the rule that combines the reports into one. Its `fewest_reports` is the lowest quorum that a scenario may
            have.
        channel: the channel over which reports come; None: the network alone. A round asks those whom it reaches, and
            tells them the peak of their reports.
        caveats: warnings about its settings, one sentence each.
        most_catch_up_bytes: the most bytes that `pack_commits` takes for any number of commits, which are then sums of
            several, or hold the whole replica; None if they grow with the number.
        commits_vary: whether the bytes of a commit depend on the values of scalars, and not only on how many there are.
        scalars_formula: how many scalars a report has, in the papers' letters.
        beside_scalars: what a report holds besides its scalars, as words of a sentence.
        keeps_reports: whether the server keeps a report of each client after the commit that it is in.
        reports: what a report is, as words that follow a number of bytes.
        reveals: what its reports can reveal where neither masks nor noise hide them, as words that follow "can reveal".
        tells_samples: how its reports tell how many samples a client has, as words of a sentence; "": they do not.
    """

    label: str
    is_dense: bool = False
    takes_late: bool = False
    is_order_free: bool = False
    is_widened: bool = False
    is_exact: bool = False
    adds_up: bool = False
    tracks_sums: bool = False
    law: Any = None
    has_round_seeds: bool = False
    is_comparable: bool = True
    shares_work: bool = False
    weighs_samples: bool = False
    remembers: bool = True
    needs_outputs: bool = False
    needs_slopes: bool = False
    needs_factors: bool = False
    needs_layers: bool = False
    knows_evaluations: bool = True
    most_clients: int | None = None
    rule: Any
    channel: Any = None
    caveats: Sequence[str] = ()
    most_catch_up_bytes: int | None = None
    commits_vary: bool = False
    scalars_formula: str = "K·P"
    beside_scalars: str = ""
    keeps_reports: bool = False
    reports: str = "a report"
    reveals: str = "the samples that it was made from"
    tells_samples: str = ""


def of_algorithm(algorithm: Any) -> Iterator[Statement]:
    """Yield what an algorithm with its settings needs, and what it rules out."""
    facts: Facts = algorithm.facts
    if facts.needs_slopes:
        yield Needs(Fact.SLOPES, "takes forward derivatives of a network", "estimator")
    if facts.needs_layers:
        yield Needs(Fact.ALL_COORDINATES, "takes directions of whole layers")
        yield Needs(Fact.LAYERS, "needs layers")
    if facts.needs_outputs:
        yield Needs(Fact.WHOLE_BATCHES, "needs outputs of whole batches")
        yield Needs(Fact.OUTPUTS, "needs the outputs of a classifier that learns by cross-entropy")
    if not facts.adds_up:
        yield RulesOut(Fact.ADDS_UP, "reports none with these settings")
    elif facts.tracks_sums:
        yield RulesOut(Fact.FORGETFUL, "has clients that remember what they reported")
    if not facts.is_order_free:
        yield RulesOut(Fact.ORDER_FREE, "adds to x what depends on their order with these settings")
    if not facts.is_exact:
        yield RulesOut(Fact.EXACT, "has commits that are no exact sum with these settings")
    if not facts.has_round_seeds:
        yield RulesOut(Fact.ROUND_SEEDS, "has none")
    if not facts.is_comparable:
        yield RulesOut(Fact.COMPARABLE, "gives each client directions of its own")
    if facts.is_dense:
        yield RulesOut(Fact.LOG, "always sends its clients the newest model")
    if not facts.takes_late:
        summed, stepped = "sums all reports of a round at once", "takes steps to which late scalars do not add"
        yield RulesOut(Fact.LATE, f"{summed} in its channel" if facts.is_dense else stepped)
