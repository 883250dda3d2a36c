"""What a private run cannot have: whatever shows more of a client than the noise hides."""

from __future__ import annotations

from typing import Any

from seedbus.agents.availability import AvailabilityFault
from seedbus.agents.privacy.accountant import LEAST_DELTA
from seedbus.agents.privacy.settings import FINEST, Privacy
from seedbus.agents.server.collusion import Collude
from seedbus.algorithms.summed import DENSE, Summed

LARGEST = 2**31 - 1


def refuse_unprivate(scenario: Any, privacy: Privacy) -> None:
    """Raise `ValueError` if a `Scenario` with this `privacy` would not keep what it promises."""
    algorithm, who = scenario.algorithm, scenario.participation
    if not (isinstance(algorithm, Summed) and algorithm.adds_up):
        raise ValueError(
            f"privacy clips and adds whole numbers, and the reports of algorithm {algorithm.name} are none with these "
            f"settings; decomfl, fedscalar-shared and mezo with arithmetic: integer and precision: int32, and {DENSE} "
            "are accepted"
        )
    if algorithm.tracks_sums:
        raise ValueError(
            f"privacy clips what clients of {scenario.algorithm.label} report and remember, so its server would have "
            "something else; fedavg, fedacg and others whose clients remember nothing are accepted"
        )
    if algorithm.aggregation.rule != "mean":
        raise ValueError(
            f"algorithm.aggregation: {algorithm.aggregation.rule} has no bound on what one client changes; with "
            "privacy mean is accepted"
        )
    if who.late is not None:
        raise ValueError("participation.late: the noise of privacy covers one round's sum; leave late (and buffer) out")
    if who.selection.needs_known:
        raise ValueError(
            f"participation.selection: {who.selection.policy} looks at reports before noise is added to them; with "
            "privacy uniform is accepted"
        )
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault, Collude):
            raise ValueError(
                f"faults.{number} makes reports out of those of others, so that one client changes a sum by more than "
                "privacy.clip; leave it out"
            )
    if scenario.evaluation.split == "train":
        raise ValueError(
            "evaluation.split: train measures on the clients' own samples, without noise, and ε does not count that; "
            "with privacy validation and test are accepted"
        )
    if privacy.delta >= 1 / who.clients:
        raise ValueError(
            f"privacy.delta is {privacy.delta:g}: of {who.clients:,} clients it lets one be exposed; below "
            f"{1 / who.clients:g} is accepted"
        )
    _refuse_mechanism(scenario, privacy)
    variance = privacy.variance(who.quorum)
    if variance < FINEST:
        raise ValueError(
            f"privacy.clip is {privacy.clip} and noise_multiplier {privacy.noise_multiplier:g}: noise of σ = "
            f"{variance**0.5:.3g} units is too coarse; at least {FINEST**0.5:g} is accepted (a larger unit_bits makes "
            "units smaller)"
        )
    largest = privacy.largest_sum(who.quorum, who.most_asked)
    if largest > LARGEST:
        raise ValueError(
            f"privacy.clip is {privacy.clip}: a sum of {who.most_asked} reports with noise may reach {largest:.3g} "
            f"units; at most {LARGEST} is accepted (a smaller unit_bits makes units larger)"
        )


def _refuse_mechanism(scenario: Any, privacy: Privacy) -> None:
    who = scenario.participation
    if privacy.mechanism == "distributed":
        if scenario.secure_aggregation is None:
            raise ValueError(
                "privacy.mechanism: distributed needs secure_aggregation: without it the server sees each report, with "
                "only its own share of the noise; central is accepted"
            )
        if privacy.cohorts == "secret":
            raise ValueError(
                "privacy.cohorts: secret is for mechanism: central: distributed protects from the server, which draws "
                "the cohorts; public is accepted"
            )
    if privacy.cohorts == "secret":
        if who.selection.policy not in ("uniform", "poisson"):
            raise ValueError(
                f"participation.selection: {who.selection.policy} draws no uniform sample, which privacy.cohorts: "
                "secret accounts for; public is accepted"
            )
        if who.selection.is_fixed_size and privacy.delta < LEAST_DELTA:
            raise ValueError(
                f"privacy.delta is {privacy.delta:g}: with privacy.cohorts: secret and selection: uniform at least "
                f"{LEAST_DELTA:g} is accepted"
            )
        away = [getattr(fault, "fault", "") for fault in scenario.faults if isinstance(fault, AvailabilityFault)]
        if away or scenario.clock == "wall":
            why = f"with fault {away[0]}" if away else "with clock: wall"
            raise ValueError(
                f"privacy.cohorts: secret samples from all clients, and {why} some may be away; public is accepted"
            )
        if privacy.noise == "system":
            raise ValueError(
                "privacy.noise: system hides reports from those who have the scenario's seed, and that seed draws the "
                "cohorts, which are not secret then; with privacy.cohorts: secret seeded is accepted"
            )
        _refuse_telling(scenario)
        _refuse_counts(scenario)


def _refuse_telling(scenario: Any) -> None:
    """Refuse what lets other reports, or the number of commits, depend on whether a client is in a secret cohort."""
    who = scenario.participation
    for field in ("bytes", "simulated_s"):
        if getattr(scenario.stop, field) is not None:
            raise ValueError(
                f"stop.{field}: how many commits there are would tell of those whom rounds asked; with "
                "privacy.cohorts: secret leave it out, or use cohorts: public"
            )
    if who.deadline is not None:
        raise ValueError(
            "participation.deadline adapts to those whom rounds asked, so who is in time would tell of them; with "
            "privacy.cohorts: secret deadline_s alone is accepted"
        )
    for field in ("shared_up_mbps", "shared_down_mbps"):
        if who.deadline_s is not None and getattr(scenario.network, field) is not None:
            raise ValueError(
                f"network.{field}: who is in time for deadline_s would depend on who else was asked; with "
                "privacy.cohorts: secret leave it or deadline_s out, or use cohorts: public"
            )


def _refuse_counts(scenario: Any) -> None:
    """Refuse what would show how many of a secret cohort have reported, and with that who may be in it."""
    if scenario.secure_aggregation is not None:
        raise ValueError(
            "secure_aggregation unmasks no sum of fewer than two reports, which shows that so few came; with "
            "privacy.cohorts: secret leave it out, or use cohorts: public"
        )
    if scenario.participation.quorum > 1:
        raise ValueError(
            f"participation.quorum is {scenario.participation.quorum}: a round without a commit would show how few of "
            "its cohort reported; with privacy.cohorts: secret 1 is accepted, and a round without reports commits noise"
        )
