"""A study's table on a terminal, as Markdown, LaTeX and CSV, and sentences about which rows are better."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from seedbus.bus.text import counted, printable
from seedbus.scenarios.analysis.quantities import QUANTITIES, served_metric
from seedbus.scenarios.reporting.axes import byte_unit, with_unit
from seedbus.scenarios.reporting.terminal import console, in_markdown, shown, titled
from seedbus.scenarios.schema.amounts import words_of
from seedbus.scenarios.study.claims import FINAL, verdict
from seedbus.scenarios.study.intervals import Difference, Mean
from seedbus.scenarios.study.published import published
from seedbus.scenarios.study.results import StudyResults

if TYPE_CHECKING:
    import pandas as pd

Unit = Callable[[float], tuple[float, str, int]]
"""Value → factor by which values are multiplied, the unit, and the decimal places."""
MAX_SENTENCES = 20
MAX_PLAIN = 1e9  # larger numbers are written with an exponent
MAX_WIDTH = 10_000
_LATEX = {
    "\\": r"\textbackslash{}",
    **{each: f"\\{each}" for each in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "÷": r"$\div$",
    "−": "$-$",
    "κ": r"$\kappa$",
    "ζ": r"$\zeta$",
    "–": "--",
}
_FORMULA = ("=", "+", "-", "@")


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        head: its heading.
        figure: the figure's name.
        unit: how its values are written.
        stack: columns of one stack are one column on a terminal, a line each.
        has_interval: whether the interval of the mean is shown too.
    """

    head: str
    figure: str
    unit: Unit
    stack: str
    has_interval: bool = False


def columns(results: StudyResults) -> list[Column]:
    """Return the columns of figures."""
    ask, metric = results.plan.study.ask, shown(results.metric)
    served = served_metric(results.plan.cells[0].scenario.task, results.metric)
    unit = _unit_of(metric)
    found = [
        Column(f"{metric}, average at the end", FINAL, unit, "final", has_interval=True),
        Column("last value", "last", unit, "last"),
        *(Column(f"last model on {split}", f"{split}_{results.metric}", unit, "last") for split in ask.splits),
    ]
    for point in ask.at:
        found.append(Column(f"at {words_of(point)}", f"at_{point}", unit, f"at {point}"))
        found.append(Column(f"average at {words_of(point)}", f"at_{point}_ema", unit, f"at {point}"))
    if ask.target is not None:
        found += [
            Column(f"rounds to {ask.target:g}", "rounds_to_target", _count, "target"),
            Column("bytes to it", "bytes_to_target", _size, "target"),
            Column("simulated time to it", "simulated_s_to_target", _seconds, "target"),
        ]
    return [
        *found,
        *(
            Column(f"{shown(served)}, {each.words}", name, _unit_of(served), "analysis")
            if (each := QUANTITIES[name]).is_served
            else Column(each.words, name, _number, "analysis")
            for name in ask.analysis
        ),
        Column("bytes", "bytes", _size, "cost"),
        Column("simulated time", "simulated_s", _seconds, "cost"),
        Column("forward passes", "forward_passes", _count, "cost"),
    ]


def cells(results: StudyResults) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows, safe to print. A cell may have a second line, with the interval."""
    chosen = list(results.plan.study.tuned_fields)
    fields = [shown(path.rpartition(".")[2]) for path in chosen]
    heads = ["row", "seeds", *fields, *(each.head for each in columns(results))]
    rows = []
    for cell in results.plan.cells:
        values = results.tuned[cell.name].chosen if cell.name in results.tuned else {}
        count = len(results.members[cell.name])
        of = f" of {len(results.plan.study.seeds)}" if count < len(results.plan.study.seeds) else ""
        tuned = [shown(f"{values[path]}") if path in values else "–" for path in chosen]
        figures = [_cell(results.mean(cell.name, each.figure), each, count) for each in columns(results)]
        rows.append([shown(cell.name), f"{count}{of}", *tuned, *figures])
    return heads, rows


def show(results: StudyResults) -> None:
    """Print the table and the sentences to stdout. If stdout is not a terminal, it is as wide as its content needs."""
    heads, rows = cells(results)
    first = len(heads) - len(columns(results))
    stacks = [*(str(number) for number in range(first)), *(each.stack for each in columns(results))]
    table = Table(show_lines=True)
    for number, head in enumerate(_stacked(heads, stacks)):
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*_stacked(row, stacks))
    out = console()
    needed = console(width=MAX_WIDTH).measure(table).maximum
    (out if out.is_terminal else console(width=needed)).print(titled(title(results), table))
    for sentence in sentences(results):
        out.print(shown(sentence), soft_wrap=True, highlight=False)


def _stacked(row: list[str], stacks: list[str]) -> list[str]:
    """Return a row with the columns of each stack as one."""
    lines: dict[str, list[str]] = {}
    for stack, text in zip(stacks, row, strict=True):
        lines.setdefault(stack, []).append(text)
    return ["\n".join(each) for each in lines.values()]


def markdown(results: StudyResults) -> str:
    """Return the table in Markdown, with the sentences below it."""
    heads, rows = cells(results)
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    table = [f"| {' | '.join(in_markdown(' '.join(each.splitlines())) for each in row)} |" for row in lines]
    return "\n".join([*table, "", *(f"- {in_markdown(sentence)}" for sentence in sentences(results))])


def latex(results: StudyResults) -> str:
    """Return the table in LaTeX, for the package booktabs, with a note below it on how a cell is to be read."""
    heads, rows = cells(results)
    body = [" & ".join(_latex(" ".join(each.splitlines())) for each in row) + r" \\" for row in [heads, *rows]]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}"
    note = rf"\multicolumn{{{len(heads)}}}{{l}}{{\footnotesize Figures: {_latex(_reading(results))}}} \\"
    return "\n".join([begin, r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule", note, r"\end{tabular}"])


def csv(frame: pd.DataFrame) -> str:
    """Return a data frame as CSV, safe to print, in which no text is a formula to a spreadsheet."""
    safe = frame.copy()
    for name in frame.select_dtypes(exclude=["number", "bool"]):
        safe[name] = frame[name].map(_csv)
    return safe.rename(columns=_csv).to_csv(index=False)


def title(results: StudyResults) -> str:
    """Return the table's title."""
    study = results.plan.study
    runs = sum(map(len, results.members.values()))
    what = study.description or study.name
    return shown(f"{what}: {counted(runs, 'run')}; {_reading(results)}")


def _reading(results: StudyResults) -> str:
    """Return how a cell is to be read."""
    level = f"{100 * results.plan.study.ask.confidence:.6g}%"
    interval = f"{level} interval of the mean, the wider of Student's and the bootstrap's"
    return f"mean ± standard deviation over seeds, [{interval}]"


def sentences(results: StudyResults) -> list[str]:
    """Return what can be said about pairs of rows, about values at the edge of their grid, and about failed runs.

    Each is one line that is safe to print.
    """
    metric, found = shown(results.metric), _claim(results)
    for figure, pairs in results.compared_by.items():
        is_final = figure == FINAL
        where = "average at the end" if is_final else f"at {words_of(figure.removeprefix('at_'))}"
        found += _compared(results, where, pairs) + ([] if is_final else _measured(results, figure, where))
    found += [_divergence(results, row) for row in results.diverged]
    found += _remarks(results)
    found += _chosen_in_vain(results)
    if results.front:
        found.append(f"Pareto front of {metric} against bytes: {'; '.join(map(shown, results.front))}")
    if results.beside_front:
        rows = "; ".join(map(shown, results.beside_front))
        found.append(f"not seen to be worse than a row of the front, with equal bytes or fewer: {rows}")
    for row, tuned in results.tuned.items():
        found += [
            f"{shown(row)}: {path} {tuned.chosen[path]} is at the edge of what was tried "
            f"({len(tuned.trials)} values); a better one may lie beyond it"
            for path in tuned.at_edge
        ]
        if not tuned.chosen:
            found.append(f"{shown(row)}: nothing could be chosen, because no trial has a finite {metric}")
    found += _unequal_trials(results)
    found += [
        f"{shown(row)}, seed {member.seed}: `verify` found replicas that hold other bits"
        for row, members in results.members.items()
        for member in members
        if member.run.results is not None and "diverged" in member.run.results.summary["refusals"]
    ]
    found += published(results.plan.study.published)[1]
    found += [f"failed: {failure}" for failure in results.failures]
    return [printable(sentence, len(sentence)) for sentence in found]


def _compared(results: StudyResults, where: str, pairs: list[tuple[str, str, Difference]]) -> list[str]:
    """Return what can be said about pairs of rows; nothing without pairs.

    Args:
        results: the study's.
        where: at which time of a run they are compared.
        pairs: with their differences.
    """
    if not pairs:
        return []
    ask = results.plan.study.ask
    seen = [(row, other, each) for row, other, each in pairs if each.is_seen]
    pair = "pair" if len(pairs) == 1 else "pairs"
    wrong = (1 - ask.confidence) * len(pairs)
    chance = f"each, so that {wrong:{',.0f' if wrong >= 1 else '.1g'}} of them may seem to differ by chance"
    which = f"{len(pairs):,} {pair} at {100 * ask.confidence:.6g}% {'together' if ask.together else chance}"
    found = [f"Differences in {shown(results.metric)} ({where}), paired over seeds; {which}:"]
    ordered = sorted(seen, key=lambda each: -abs(each[2].mean))
    found += [f"{_verdict(results, *each)}" for each in ordered[:MAX_SENTENCES]]
    if len(seen) > MAX_SENTENCES:
        found.append(f"and {len(seen) - MAX_SENTENCES:,} more pairs differ (differences.csv)")
    return found + _unseen(pairs)


def _measured(results: StudyResults, figure: str, where: str) -> list[str]:
    """Return which rows have no value at an amount of bytes, and how early the value of another was measured."""
    compared = {row: runs for row, runs in results.members.items() if row not in results.diverged}
    lacking = [row for row, runs in compared.items() if any(member.figures[figure] is None for member in runs)]
    found = [f"not every run has a value {where}: {'; '.join(map(shown, lacking))}"] if lacking else []
    sent = [
        (member.figures[f"{figure}_bytes"] or 0.0, row)
        for row, runs in compared.items()
        if row not in lacking
        for member in runs
    ]
    if sent:
        least, row = min(sent)
        factor, unit, places = _size(least)
        earliest = f"{shown(row)}'s at {factor * least:,.{places}f} {unit} is the earliest"
        found.append(f"a value {where} is that of the last evaluation before; {earliest}")
    return found


def _claim(results: StudyResults) -> list[str]:
    """Return the claim with its verdict, and what was found of each expectation; nothing without a claim."""
    study = results.plan.study
    if not study.claim:
        return []
    source = f" ({study.source})" if study.source else ""
    return [f"Claim{source}: {study.claim}: {verdict(results.judged)}", *map(str, results.judged)]


def _divergence(results: StudyResults, row: str) -> str:
    """Return the sentence about a row with runs that diverged."""
    ended = [member for member in results.members[row] if member.run.divergence]
    if not ended:
        what = f"the {shown(results.metric)} of a run is not finite at the end"
    else:
        how = "; ".join(f"seed {each.seed}: {each.run.divergence}" for each in ended[:MAX_SENTENCES])
        what = f"{shown(how)}; {len(ended)} of {len(results.members[row])} runs diverged"
    return f"{shown(row)}: {what}, so this row is compared with none"


def _remarks(results: StudyResults) -> list[str]:
    """Return what runs did not achieve: no commit, or a model that is worse than the one they began with."""
    told = [
        f"{shown(row)}, seed {member.seed}: {remark}"
        for row, members in results.members.items()
        for member in members
        for remark in member.run.shortcomings(results.metric)
    ]
    more = [f"and {len(told) - MAX_SENTENCES:,} more runs without success (runs.csv)"] if told[MAX_SENTENCES:] else []
    return [*told[:MAX_SENTENCES], *more]


def _chosen_in_vain(results: StudyResults) -> list[str]:
    """Return a sentence for each row of which a run learnt nothing with the values that trials had chosen."""
    tuning, found = results.plan.study.tuning, []
    of_trials = tuning.seeds or results.plan.study.seeds[:1]
    for row, tuned in results.tuned.items():
        runs = results.members[row]
        failed = [each.seed for each in runs if each.has_diverged or each.run.shortcomings(results.metric)]
        if tuned.chosen and failed:
            values = ", ".join(f"{path} {value}" for path, value in tuned.chosen.items())
            what = f"{values} was chosen by trials with {_seeds(of_trials)}, and did not hold in the runs of"
            more = "`tuning` with more seeds or rounds may choose better"
            found.append(f"{shown(row)}: {what} {_seeds(failed)} ({len(failed)} of {len(runs)}); {more}")
    return found


def _seeds(seeds: list[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _unequal_trials(results: StudyResults) -> list[str]:
    """Return the sentence about rows that spent more trials than others, if there are such."""
    rows: dict[int, list[str]] = {}
    for cell in results.plan.cells:
        tuned = results.tuned.get(cell.name)
        rows.setdefault(0 if tuned is None else len(tuned.trials), []).append(shown(cell.name))
    if len(rows) == 1:
        return []
    counts = "; ".join(f"{count:,}: {', '.join(rows[count])}" for count in sorted(rows))
    return [f"rows spent different numbers of trials, which favours those with more; {counts}"]


def _verdict(results: StudyResults, row: str, other: str, difference: Difference) -> str:
    better = results.better(row, other, difference)
    worse = other if better == row else row
    ends = sorted((abs(difference.low), abs(difference.high)))
    factor, unit = (100, " points") if results.metric.startswith("accuracy") else (1, "")
    by = f"{factor * abs(difference.mean):.4g}{unit} [{factor * ends[0]:.4g}, {factor * ends[1]:.4g}]"
    return f"{shown(better)} is better than {shown(worse)} by {by}"


def _unseen(pairs: list[tuple[str, str, Difference]]) -> list[str]:
    """Return the sentences about pairs without a difference, a sentence for each number of seeds."""
    by_seeds: dict[int, list[str]] = {}
    for row, other, each in pairs:
        if not each.is_seen:
            by_seeds.setdefault(each.seeds, []).append(f"{shown(row)} and {shown(other)}")
    found = []
    for seeds, named in by_seeds.items():
        more = f"; and {len(named) - MAX_SENTENCES:,} more pairs" if len(named) > MAX_SENTENCES else ""
        between = "; ".join(named[:MAX_SENTENCES]) + more
        found.append(f"no difference seen at {seeds} seed{'s' if seeds != 1 else ''}: {between}")
    return found


def _cell(mean: Mean | None, column: Column, runs: int) -> str:
    if mean is None:
        return "–"
    if mean.seeds < runs:  # a mean over only some of the runs would mislead
        return f"{mean.seeds} of {runs} runs"
    factor, unit, places = column.unit(mean.mean)

    def written(value: float) -> str:
        return f"{factor * value:,.{places}f}" if abs(value) < MAX_PLAIN else f"{value:.3g}"

    text = written(mean.mean)
    if mean.deviation:
        text += f" ± {written(mean.deviation)}"
    text = with_unit(text, unit)
    if column.has_interval and mean.low is not None and mean.high is not None and mean.low < mean.high:
        text += f"\n[{written(mean.low)}, {written(mean.high)}]"
    return text


def _unit_of(metric: str) -> Unit:
    return _share if metric.startswith("accuracy") else _number


def _share(value: float) -> tuple[float, str, int]:
    return 100, "%", 2


def _number(value: float) -> tuple[float, str, int]:
    return 1, "", max(0, 3 - math.floor(math.log10(abs(value)))) if value else 1


def _count(value: float) -> tuple[float, str, int]:
    return 1, "", 0 if value >= 100 else 1


def _size(value: float) -> tuple[float, str, int]:
    unit, name = byte_unit(value)
    return 1 / unit, name, 0 if name == "B" else 2


def _seconds(value: float) -> tuple[float, str, int]:
    return 1, "s", 1


def _latex(text: str) -> str:
    # at the beginning of a line these would be options of the `\\` or the `\midrule` before it
    begins = "{}" if text.lstrip().startswith(("[", "*")) else ""
    return begins + "".join(_LATEX.get(character, character) for character in text)


def _csv(value: Any) -> Any:
    """Return a cell; what is no text remains as it is."""
    if not isinstance(value, str):
        return value
    text = printable(value, len(value))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
