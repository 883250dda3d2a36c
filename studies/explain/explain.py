"""`seedbus explain`: what a scenario will do, in plain words, and what it will cost here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from rich.table import Table

from seedbus.agents.privacy.feature import PrivateReports
from seedbus.agents.privacy.spent import in_words
from seedbus.agents.sight import Viewer
from seedbus.bus.text import counted
from seedbus.scenarios.consent.who_sees import WITHOUT_KEYS, grid, who_sees
from seedbus.scenarios.reporting.closing_table import fault_counts
from seedbus.scenarios.reporting.looks import number_text
from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.reporting.remaining_time import duration
from seedbus.scenarios.reporting.terminal import console, say, shown, titled
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.explain.forecast import Forecast, forecast
from seedbus.studies.explain.rehearsal import do_commits_vary
from seedbus.studies.explain.words import words


def explain(scenario: Scenario, seconds: float) -> dict[str, Any]:
    """Return what a scenario will do and cost, as plain data.

    Args:
        scenario: the scenario.
        seconds: about how long to measure; 0: not at all.

    Returns:
        scenario: its name.
        is_serverless: whether nodes send each other commits, without a server.
        words: topic → sentences.
        sees: who sees what of a client: viewer → matter → words.
        traffic, time, memory: the fields of `forecast.Traffic`, `Time` and `Memory`, with `time.total`; null if they
            are not measured.
        disk: the fields of `forecast.Disk`; null if nothing is measured.
        privacy: what `seedbus explain RUN privacy` will say of the run, with `is_exact`, `ends_run` and `budget`
            (`stop.epsilon`); null if it is not private, or nothing is measured.
        lag: {median, p95, max} of the commits that clients had missed when they were asked, or that nodes lacked when
            a round closed.
        faults: for each fault what it did in the rehearsal.
        assumes: what these figures depend on, in sentences.
        why_not: why time and memory are null; "" if they are not.
    """
    found = forecast(scenario, seconds) if seconds else None
    said: dict[str, Any] = {
        "scenario": scenario.name,
        "is_serverless": not scenario.has_server,
        "words": words(scenario),
        "sees": who_sees(scenario),
    }
    if found is None:
        why_not = "nothing was measured (--seconds 0)"
        nothing = dict.fromkeys(("traffic", "time", "memory", "disk", "privacy", "lag"))
        return said | nothing | {"faults": [], "assumes": [], "why_not": why_not}
    summary = found.rehearsal.summary
    return said | {
        "traffic": asdict(found.traffic),
        "time": None if found.time is None else asdict(found.time) | {"total": found.time.total},
        "memory": None if found.memory is None else asdict(found.memory),
        "disk": asdict(found.disk),
        "privacy": _spent(scenario, found),
        "lag": {name: summary["lag"][name] for name in ("median", "p95", "max")},
        "faults": summary["faults"],
        "assumes": _assumptions(scenario, found),
        "why_not": found.why_not,
    }


def sight(scenario: Scenario) -> dict[str, Any]:
    """Return who sees what of a client, and on what that depends: `sees` and `words` of `explain`, of this topic."""
    return {"sees": who_sees(scenario), "words": words(scenario).get("privacy", [])}


def show(explained: dict[str, Any]) -> None:
    """Print an explanation as a table."""
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column()
    did = [f" → {fault_counts(each)}" for each in explained["faults"]]
    for topic, told in explained["words"].items():
        counts = did if topic == "faults" else []
        _add(table, topic, [said + count for said, count in zip_longest(told, counts, fillvalue="")])
    for topic, costs in _costs(explained):
        _add(table, topic, costs)
    console(width=None if sys.stdout.isatty() else 100).print(titled(shown(explained["scenario"]), table))
    show_sight({"sees": explained["sees"], "words": []})


def show_sight(found: dict[str, Any]) -> None:
    """Print who sees what of a client, and on what that depends."""
    screen = console(width=None if sys.stdout.isatty() else 100)
    screen.print(titled("who sees what of a client", grid(found["sees"])))
    for sentence in (*found["words"], *([WITHOUT_KEYS] if Viewer.STRANGER in found["sees"] else [])):
        say(sentence)


def _add(table: Table, topic: str, sentences: Sequence[str]) -> None:
    for number, sentence in enumerate(sentences):
        table.add_row("" if number else topic, shown(sentence))
    table.add_section()


def _costs(explained: dict[str, Any]) -> list[tuple[str, list[str]]]:
    traffic, time, memory, spent = (explained[name] for name in ("traffic", "time", "memory", "privacy"))
    if traffic is None:
        return [("costs", [explained["why_not"]])]
    about = "" if traffic["is_exact"] else "about "
    rows = [("bytes", _bytes(traffic, explained["lag"], is_serverless=explained["is_serverless"]))]
    if spent is not None:
        rows.insert(0, ("epsilon", _privacy(spent, traffic)))
    if explained["disk"]["end"]:
        disk = (
            f"about {readable(explained['disk']['end'])} of what clients remember, in the run's folder; up to "
            f"{readable(explained['disk']['most'])} while it goes on"
        )
        rows.append(("disk", [disk]))
    if time is None or memory is None:
        return [*rows, ("time and memory", [f"not measured: {explained['why_not']}"]), *_assumes(explained)]
    parts = {name: time[name] for name in ("start", "trial", "messages", "work", "replay", "evaluation")}
    listed = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts.items() if seconds >= 0.05)
    rows += [
        (
            "time",
            [
                f"about {duration(time['total'])} in one process on this machine if nothing else runs: {listed}; from "
                f"{counted(time['tried'], 'round')} that {'was' if time['tried'] == 1 else 'were'} tried out",
                *([f"{about}{duration(traffic['simulated_s'])} of simulated time"] if traffic["simulated_s"] else []),
            ],
        ),
        (
            "memory",
            [
                f"about {readable(memory['total'])}, with up to {memory['replicas']:,} replicas of the model; at "
                f"least {readable(memory['least'])} beside what libraries need"
            ],
        ),
    ]
    return [*rows, *_assumes(explained)]


def _bytes(traffic: dict[str, Any], lag: dict[str, Any], *, is_serverless: bool) -> list[str]:
    rounds = "the one round" if traffic["rounds"] == 1 else f"all {traffic['rounds']:,} rounds"
    how = f"a rehearsal of {rounds} without the model"
    if traffic["is_exact"]:
        how += ": the run will send exactly these, unless training diverges"
    elif traffic["rehearsed"] != traffic["rounds"]:
        how = (
            f"a rehearsal of {traffic['rehearsed']:,} of {traffic['rounds']:,} rounds without the model, extrapolated "
            "(more --seconds rehearse all)"
        )
    if is_serverless:
        sent, brought = f"{readable(traffic['up'])} between nodes", "catch-up"
        lagged = "nodes lacked {} when a round closed"
    else:
        sent = f"{readable(traffic['up'])} up and {readable(traffic['down'])} down"
        brought, lagged = "commits", "clients had missed {} when asked"
    about = "" if traffic["is_exact"] else "about "
    of_it = f", {readable(traffic['catchup'])} of it {brought}" if traffic["catchup"] else ""
    commits = f"{number_text(lag['median'])} commit{'s' * (lag['median'] != 1)}"
    return [
        f"{about}{sent}{of_it}; from {how}",
        *_wire(traffic),
        f"in the rehearsal, {lagged.format(commits)} (median), {lag['max']:,} at most",
    ]


def _wire(traffic: dict[str, Any]) -> list[str]:
    if traffic["wire"] is None:
        return []
    (framed_up, framed_down), (up, down) = traffic["framed"], traffic["wire"]
    resent = readable(sum(traffic["resent"]))
    payload = max(1, traffic["up"] + traffic["down"])
    return [
        f"on wires about {readable(up)} up and {readable(down)} down, {(up + down) / payload:.1f} times as much: "
        f"{readable(framed_up)} and {readable(framed_down)} with frames, and the headers and acknowledgements of TCP "
        f"over IP, if each client has a process and a key of its own; each 1% of packets lost adds about {resent}",
    ]


def _privacy(spent: dict[str, Any], traffic: dict[str, Any]) -> list[str]:
    said = [f"{'' if spent['is_exact'] else 'about '}{in_words(spent)}"]
    if spent["ends_run"]:
        said.append(f"stop.epsilon ({spent['budget']:g}) ends the run: one more commit could exceed it")
    elif spent["budget"] is not None:
        said.append(f"stop.epsilon ({spent['budget']:g}) does not end the run")
    if not spent["is_exact"] and traffic["rehearsed"] < traffic["rounds"]:
        said.append("after the rehearsal all clients that a round asks are taken to report")
    return said


def _assumes(explained: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [("if", explained["assumes"])] if explained["assumes"] else []


def _spent(scenario: Scenario, found: Forecast) -> dict[str, Any] | None:
    feature = next((each for each in scenario.features if isinstance(each, PrivateReports)), None)
    if feature is None or found.spent is None:
        return None
    more = {"is_exact": found.spent.is_exact, "ends_run": found.spent.ends_run, "budget": scenario.stop.epsilon}
    return feature.facts(found.spent.epsilon, found.traffic.rounds) | more


def _within_real_time(limit_s: float, found: Forecast) -> str:
    """Return what a run's limit of real time means for its figures, of which a rehearsal knows nothing.

    Real time is at least the processor's, and more where something waits for a disk, or other programs run.
    """
    said, time = "the limit of real time is not reached earlier, which would cost less", found.time
    if time is None or (takes_s := time.total - time.start + found.traffic.simulated_s) <= limit_s:
        return said
    allowed = max(1, round(found.traffic.rounds * limit_s / takes_s))
    return f"{said}: in one process on this machine it is, after at most about {counted(allowed, 'round')}"


def _assumptions(scenario: Scenario, found: Forecast) -> list[str]:
    """Return what the figures depend on that a rehearsal cannot know."""
    said = []
    if scenario.stop.target is not None:
        said.append(f"the target of {scenario.stop.target.metric} is not reached earlier, which would cost less")
    if scenario.stop.simulated_s is not None and scenario.clock == "wall":
        said.append(_within_real_time(scenario.stop.simulated_s, found))
    if scenario.participation.selection.needs_known:
        said.append(
            "clients that are preferred for their reports lag like those of the rehearsal, whose reports are all 0"
        )
    if numbers := [number for number, fault in enumerate(scenario.faults) if fault.follows_losses]:
        faults = f"fault{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
        said.append(f"the server refuses the same reports as in the rehearsal; with {faults} that depends on losses")
    if do_commits_vary(scenario.algorithm):
        said.append(f"scalars are about 1: the bytes of a commit of {scenario.algorithm.facts.label} depend on them")
    if found.others is not None:
        tried, rehearsed = map(readable, found.others)
        said.append(
            f"clients send what they send in the rehearsal, where all losses are 0; but the rounds tried out "
            f"sent {tried}, and the same rounds of the rehearsal {rehearsed}"
        )
    if scenario.clock == "wall":
        said.append("real time passes like simulated time; it adds to the time above what rounds wait for")
    return said
