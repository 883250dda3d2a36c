"""`seedbus stress` on the command line: examines many seeds in parallel processes."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.terminal import say

if TYPE_CHECKING:
    from seedbus.studies.stress.stress import Verdict

MARGIN_S = 5.0  # time beyond --minutes after which processes that still run are killed


def stress(
    seed: Annotated[int, typer.Option(min=0, help="The first seed; each seed is a scenario.")] = 0,
    scenarios: Annotated[
        int | None, typer.Option(min=1, help="How many; default: 100, or what the minutes allow.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Go on for so long; the scenario in progress is then cut off.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Processes that make runs.")] = os.cpu_count() or 1,
    out: Annotated[Path, typer.Option(help="Where the scenario of a failure is written.")] = Path("."),
) -> None:
    """Run random scenarios and check what must be true of every run. Failures are reported by seed and made small."""
    with cli_errors():
        count = scenarios if scenarios is not None or minutes is not None else 100
        total, failures = Total(), 0
        try:
            for verdict in examined(seed, count, minutes, jobs):
                total.add(verdict)
                if verdict.problem is not None:
                    failures += 1
                    path = out / f"stress-{verdict.seed}.yaml"
                    _write(path, verdict)
                    say(f"seed {verdict.seed}: {verdict.problem}; its smallest scenario is in {path}")
                elif total.scenarios % 50 == 0:
                    say(total.line())
        finally:  # the totals are printed after Ctrl-C too
            say(total.line())
            say("faults: " + ", ".join(f"{name} {number:,}" for name, number in sorted(total.faults.items())))
            say(f"{failures} failures" if failures else "no failure")
    if failures:
        raise typer.Exit(Exit.DIVERGED)


class Total:
    """Totals over all seeds that have been examined."""

    def __init__(self) -> None:
        from seedbus.bus.clock import wall_seconds

        self._now = wall_seconds
        self._began_s = self._now()
        self.scenarios = 0
        self.rounds = 0
        self.messages = 0
        self.first: int | None = None
        self.last = 0
        self.faults: Counter[str] = Counter()

    def add(self, verdict: Verdict) -> None:
        if verdict.is_cut:
            return
        self.scenarios += 1
        self.rounds += verdict.rounds
        self.messages += verdict.messages
        self.faults.update(verdict.faults)
        self.first = verdict.seed if self.first is None else min(self.first, verdict.seed)
        self.last = max(self.last, verdict.seed)

    def line(self) -> str:
        from seedbus.bus.text import counted

        minutes = (self._now() - self._began_s) / 60
        seeds = "no seed" if self.first is None else f"seeds {self.first} to {self.last}"
        return (
            f"{seeds}: {counted(self.scenarios, 'scenario')}, {counted(self.rounds, 'round')}, "
            f"{counted(self.messages, 'message')} in {minutes:.1f} min ({self.rounds / minutes:,.0f} rounds/min)"
        )


def examined(seed: int, count: int | None, minutes: float | None, jobs: int) -> Iterator[Verdict]:
    """Examine seeds in parallel and yield their verdicts as they become ready.

    All processes end when the iteration ends, or when this process ends. A scenario that ends its process is a failure.

    Args:
        seed: the first seed.
        count: number of seeds; None: no limit.
        minutes: time limit; None: no limit.
        jobs: number of processes.
    """
    from seedbus.bus.clock import wall_seconds
    from seedbus.studies.stress.stress import Verdict
    from seedbus.studies.study.pool import Job, Pool

    until_s = math.inf if minutes is None else wall_seconds() + 60 * minutes
    seeds = itertools.count(seed) if count is None else range(seed, seed + count)
    has_time = itertools.takewhile(lambda _: wall_seconds() < until_s, seeds)
    asked = (Job("stress", number, {"seed": number, "until_s": until_s}) for number in has_time)
    with Pool(jobs, stop_s=0.0) as pool:  # a run that is cut off is of no use
        for answer in pool.do(asked, until_s + MARGIN_S):
            if answer.failure is None:
                yield Verdict(**answer.facts["verdict"])
            else:
                yield Verdict.failed(answer.job.subject, answer.failure)


def _write(path: Path, verdict: Verdict) -> None:
    from seedbus.scenarios.reporting.results import write
    from seedbus.scenarios.schema.yaml_text import dump

    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, f"# {verdict.problem}\n" + dump(verdict.smallest))
    for name, text in verdict.files.items():
        write(path.parent / name, text)
