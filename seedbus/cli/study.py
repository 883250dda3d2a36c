"""`seedbus study` on the command line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seedbus.cli import completion
from seedbus.cli.options import Live, Patience, Plugins, Quiet, Set, Track, WorkerOptions
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.reporting.terminal import note, say
from seedbus.studies.study import MOST_PROCESSES

if TYPE_CHECKING:
    from seedbus.studies.study.results import StudyResults
    from seedbus.studies.study.study import Conduct


Form = Literal["text", "markdown", "latex", "csv", "parquet", "json"]
DRAWING = ("matplotlib", "plotly")
"""What a study's page needs; a table alone, asked for by --format, does without."""


@dataclass(frozen=True)
class StudyOptions:
    """Options of a study, apart from what starts worker processes."""

    settings: Set = None
    out: Annotated[Path, typer.Option(help="Where runs are kept, and looked for before they are made.")] = Path(
        "studies"
    )
    jobs: Annotated[int, typer.Option(min=1, max=MOST_PROCESSES, help="Processes that make runs.")] = 1
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what would be run, and roughly its time, bytes and disk; run nothing."),
    ] = False
    so_far: Annotated[bool, typer.Option("--so-far", help="Report the runs that are finished; run nothing.")] = False
    output: Annotated[
        Form, typer.Option("--format", help="The table on stdout; all of them are in the study's folder.")
    ] = "text"
    patience: Patience = 60.0
    track: Track = None
    live: Live = None
    plugin: Plugins = None
    quiet: Quiet = False


def study(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The file of a study, or a name from `list studies`.",
            autocompletion=completion.studies,
        ),
    ],
    options: StudyOptions,
    workers: WorkerOptions,
) -> None:
    """Run a scenario with many settings and seeds, and compare them: a table with intervals, curves, a Pareto front.

    Every run is kept by its content, so nothing is run twice: after Ctrl-C, the same command goes on.
    """
    with cli_errors():
        from seedbus.scenarios.extras import require
        from seedbus.scenarios.reporting.meter import Meter
        from seedbus.scenarios.tracking.tracker import usable
        from seedbus.studies.study.cells import plan_of
        from seedbus.studies.study.pool import STOP_S, Pool
        from seedbus.studies.study.store import Store
        from seedbus.studies.study.study import Conduct

        launches, track = workers.launches(), options.track or []
        count = workers.workers or int(launches.reaches_nodes)
        if not (options.dry_run or options.so_far):
            launches.check(count)
            launches.close()
        usable(track)
        # its report needs them, when the runs are made
        require("seedbus study", *(DRAWING if options.output == "text" else ()), "pandas", "scipy")
        if options.output == "parquet" and sys.stdout.isatty():
            raise ScenarioError("--format parquet", ["it is not text; expected stdout to be a file or a pipe"])
        plan = plan_of(file, options.settings)
        grace_s = launches.grace_s * bool(count)
        with Pool(options.jobs, STOP_S + grace_s) as pool, Meter(is_quiet=options.quiet) as meter:
            conduct = Conduct(plan, Store(options.out), pool, is_idle=options.so_far, trackers=track, meter=meter)
            if count:
                conduct.launch = {"launcher": launches.model_dump(), "workers": count, "patience_s": options.patience}
            results = _conducted(conduct, options, count)
        code = Exit.OK if results is None else _reported(results, conduct, options)
    if code:
        raise typer.Exit(code)


def _conducted(conduct: Conduct, options: StudyOptions, workers: int) -> StudyResults | None:
    """Make the runs that are missing, of which each has so many workers; None with `--dry-run`, which makes none."""
    from seedbus.studies.study.cells import metric_of
    from seedbus.studies.study.possible import refuse_impossible_rows
    from seedbus.studies.study.progress import StudyProgress

    metric_of(conduct.plan)  # a mistake in it is told before anything is run
    if not options.so_far:
        refuse_impossible_rows(conduct.plan, workers)
    try:
        if options.dry_run:
            with _live(conduct, options.live):  # so that a port which cannot be used is told
                _announce(conduct, options.jobs)
            return None
        if not (options.quiet or options.so_far):
            _announce(conduct, options.jobs)
        conduct.watcher = StudyProgress(conduct.plan.study.name, conduct.meter)
        with _live(conduct, options.live) as page_url:
            if page_url is not None:
                note(f"the live page is at {page_url}")
            return conduct.run()
    except KeyboardInterrupt:
        kept = "stopped; every closed round is kept: go on with the same command"
        raise KeyboardInterrupt("stopped" if options.dry_run else kept) from None


def _reported(results: StudyResults, conduct: Conduct, options: StudyOptions) -> Exit:
    """Write the report, print the table and what is to be known, and return the exit code."""
    from seedbus.scenarios.extras import missing
    from seedbus.studies.study.study_page import replaces_runs_by_none, write_report

    if options.so_far and not results.is_complete:
        _tell_of_other_sources(conduct)
    page, is_kept = None, replaces_runs_by_none(results)
    lacks = next(filter(None, map(missing, DRAWING)), None)
    if lacks is None and not is_kept:
        try:
            with conduct.meter as meter:
                page = write_report(results, meter)
        except OSError as error:  # such as a full disk; what was found is printed nevertheless
            where = error.filename or results.folder
            say(f"seedbus: {where}: the report cannot be written ({error.strerror})", to_stderr=True)
    _print(results, options.output)
    if is_kept:
        note(f"no run is finished; the former report stays as it is: {results.folder}")
    elif lacks is not None:
        note(f"no page is written: {lacks}")
    elif page is not None and not options.quiet:
        say(f"written: {page}, and tables and figures beside it", to_stderr=True)
    for each in conduct.notes:
        note(each)
    for failure in results.failures:
        say(f"seedbus: a run failed: {failure}", to_stderr=True)
    if page is None and lacks is None and not is_kept:
        return Exit.FOLDER
    if results.failures:
        return Exit.INCOMPLETE
    return Exit.MISSED if results.is_complete and "does not hold" in results.verdicts.values() else Exit.OK


@contextmanager
def _live(conduct: Conduct, port: str | None) -> Iterator[str | None]:
    """Serve the study's live page in this context, if there is a port; yield where it is."""
    if port is None:
        yield None
        return
    from seedbus.scenarios.operations.live_page import live
    from seedbus.studies.study.live_study import LiveStudy

    watcher = LiveStudy(conduct.plan, conduct.store, conduct.watcher)
    conduct.watcher = watcher
    with live(watcher, port) as page:
        yield page.url
        page.last = watcher.drawn


def _announce(conduct: Conduct, jobs: int) -> None:
    """Say how many runs there are, how many are missing, and what these will cost."""
    from seedbus.bus.text import counted
    from seedbus.scenarios.reporting.progress import readable
    from seedbus.scenarios.reporting.remaining_time import roughly
    from seedbus.studies.study.estimate import estimate
    from seedbus.studies.study.remarks import notes
    from seedbus.studies.study.study import missing_runs

    study, rows = conduct.plan.study, conduct.plan.cells
    missing = missing_runs(conduct.plan, conduct.store, conduct.meter)
    runs = len(rows) * len(study.seeds)
    said = f"{study.name}: {counted(len(rows), 'row')} × {counted(len(study.seeds), 'seed')} = {counted(runs, 'run')}"
    certain, most = len(missing.certain), len(missing.certain) + len(missing.further)
    if not certain:
        say(f"{said}; all are there already", to_stderr=True)
        return
    if missing.most_trials:
        trials = _from_to(f"{missing.least_trials:,}", f"{missing.most_trials:,}")
        said += f", after {trials} trial{'s' if missing.most_trials > 1 else ''}"
    # at once, for the estimate may take a minute
    say(f"{said}; {_from_to(f'{certain:,}', f'{most:,}')} to make", to_stderr=True)
    _tell_of_other_sources(conduct)
    for each in notes(conduct.plan):
        note(each)
    work = conduct.meter.begin(f"{study.name}: estimating runs", most)
    costs = estimate(missing.certain, missing.further, conduct.pool, work.advance)
    work.end()
    time = _from_to(*(roughly(each.seconds / jobs) for each in costs))
    sent = _from_to(*(readable(each.bytes) for each in costs))
    what = f"about {time} in {counted(jobs, 'process', 'processes')}, about {sent} sent"
    if costs[1].disk:
        what += f", about {_from_to(*(readable(each.disk) for each in costs))} on the disk of what clients remember"
    failing = costs[0]
    unknown = f" (without {counted(failing.unknown, 'run')} that would fail: {failing.why})" if failing.unknown else ""
    if (rate := costs[1].flops / 1e9) > 0:
        what += f"; language models from FLOPs, at {rate:.0f} GFLOP/s as measured here, and without loading"
    say(f"{study.name}: {what}{unknown}", to_stderr=True)


def _from_to(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def _tell_of_other_sources(conduct: Conduct) -> None:
    """Say how many kept runs do not count any more, because the source of a plug-in has changed."""
    from seedbus.bus.text import counted
    from seedbus.discovery import PLUGINS

    used = {name: digest for cell in conduct.plan.cells for name, digest in cell.scenario.plugins.items()}
    for name, count in conduct.store.of_other_sources(used).items():
        where = PLUGINS[name].path or f"the plug-in {name}"
        are = "is of another source of it and does" if count == 1 else "are of another source of it and do"
        again = "after any change of it, also of a comment, a study makes its runs again"
        note(f"{where}: {counted(count, 'kept run')} {are} not count; {again}")


def _print(results: StudyResults, output: Form) -> None:
    from seedbus.studies.study import tables

    if output == "text":
        tables.show(results)
    elif output == "parquet":
        buffer = io.BytesIO()
        results.table.to_parquet(buffer, index=False)
        stdout: Any = sys.stdout.buffer
        stdout.write(buffer.getvalue())
    else:
        texts = {
            "markdown": tables.markdown(results),
            "latex": tables.latex(results),
            "csv": tables.csv(results.table).rstrip(),
            "json": json.dumps(results.json()),
        }
        typer.echo(texts[output])
