"""A study's table on a terminal, as Markdown, LaTeX and CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from seedbus.bus.text import counted, printable
from seedbus.scenarios.reporting import text_tables
from seedbus.scenarios.reporting.axes import byte_unit, is_share, with_unit
from seedbus.scenarios.reporting.document import table
from seedbus.scenarios.reporting.terminal import console, in_markdown, shown
from seedbus.scenarios.reporting.text_tables import table_of
from seedbus.scenarios.schema.amounts import words_of
from seedbus.studies.analysis.quantities import quantity
from seedbus.studies.study.cells import values_of_metric
from seedbus.studies.study.claims import FINAL
from seedbus.studies.study.intervals import Mean
from seedbus.studies.study.remarks import sentences
from seedbus.studies.study.results import StudyResults

if TYPE_CHECKING:
    import pandas as pd

Unit = Callable[[float], tuple[float, str, int]]
"""Value → factor by which values are multiplied, the unit, and the decimal places."""
MAX_PLAIN = 1e9  # larger numbers are written with an exponent
MIN_HEAD = 10  # characters of a heading in LaTeX that are not broken into lines for a narrower column
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
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "∞": r"$\infty$",
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

    def written(self, mean: float, deviation: float | None) -> str:
        """Return a mean with its deviation, if there is one, and its unit."""
        factor, unit, places = self.unit(mean)
        if self.unit is count and not deviation and mean == round(mean):
            places = 0
        text = _plain(factor * mean, places)
        return with_unit(f"{text} ± {_plain(factor * deviation, places)}" if deviation else text, unit)


def columns(results: StudyResults) -> list[Column]:
    """Return the columns of figures: those that `ask.columns` names, or all that there are."""
    found, chosen = _columns(results), results.plan.study.ask.columns
    known = {each.figure: each for each in [*found, *_OF_ROUNDS]}
    return [known.get(name) or _column(results, name) for name in chosen] or found


def _column(results: StudyResults, figure: str) -> Column:
    """Return the column of a figure that no table has unless it is asked for."""
    kinds = {"bytes": size, "_share": _share, "simulated_s": seconds}
    unit = next((unit for part, unit in kinds.items() if part in figure), count)
    is_value = figure in values_of_metric(results.plan)
    return Column(shown(figure.replace("_", " ")), figure, unit_of(results.metric) if is_value else unit, figure)


def _columns(results: StudyResults) -> list[Column]:
    ask, metric, served = results.plan.study.ask, shown(results.metric), results.served
    unit = unit_of(metric)
    found = [
        Column(f"{metric}, average at the end", FINAL, unit, "final", has_interval=True),
        Column("last value", "last", unit, "last"),
        *(Column(f"last model on {split}", f"{split}_{results.metric}", unit, "last") for split in ask.splits),
    ]
    for point in ask.at:
        found.append(Column(f"at {words_of(point)}", f"at_{point}", unit, f"at {point}"))
        found.append(Column(f"average at {words_of(point)}", f"at_{point}_ema", unit, f"at {point}"))
    for name, target in ask.targets.items():
        value, it = (f"{target:g}", "it") if name == "target" else (name, name)
        found += [
            Column(f"rounds to {value}", f"rounds_to_{name}", count, f"to {it}"),
            Column(f"bytes to {it}", f"bytes_to_{name}", size, f"to {it}"),
            Column(f"simulated time to {it}", f"simulated_s_to_{name}", seconds, f"to {it}"),
        ]
    return [
        *found,
        *([Column("ε", "epsilon", number, "epsilon")] if "epsilon" in results.figures else []),
        *(
            Column(f"{shown(served)}, {shown(each.words)}", name, unit_of(served), "analysis")
            if (each := quantity(name)).is_served
            else Column(each.words, name, number, "analysis")
            for name in ask.analysis
        ),
        Column("bytes", "bytes", size, "cost"),
        Column("simulated time", "simulated_s", seconds, "cost"),
        Column("forward passes", "forward_passes", count, "cost"),
        *(_OF_ROUNDS if any(cell.scenario.faults for cell in results.plan.cells) else []),
    ]


def cells(results: StudyResults) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows, safe to print. A cell may have a second line, with the interval.

    Where rows are told apart by their circumstances, these stand in a row of one cell above them.
    """
    chosen = list(results.plan.study.tuned_fields)
    fields = [shown(path.rpartition(".")[2]) for path in chosen]
    heads = ["row", "seeds", *fields, *(each.head for each in columns(results))]
    rows = []
    for words, members in results.circumstances.items():
        if words:
            rows.append([shown(words)])
        for row, name in members.items():
            values = results.tuned[row].chosen if row in results.tuned else {}
            runs = len(results.members[row])
            of = f" of {len(results.plan.study.seeds)}" if runs < len(results.plan.study.seeds) else ""
            tuned = [shown(f"{values[path]}") if path in values else "–" for path in chosen]
            figures = [
                "∞"
                if each.figure == "epsilon" and row not in results.with_epsilon
                else _cell(results.mean(row, each.figure), each, runs)
                for each in columns(results)
            ]
            rows.append([shown(name), f"{runs}{of}", *tuned, *figures])
    return heads, rows


def small(results: StudyResults) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of a small table, safe to print: the final metric of rows under each circumstances."""
    column = _columns(results)[0]._replace(has_interval=False)
    found: dict[str, dict[str, str]] = {}
    for words, members in results.circumstances.items():
        for row, name in members.items():
            text = _cell(results.mean(row, column.figure), column, len(results.members[row]))
            found.setdefault(shown(name), {})[words] = text
    rows = [[name, *(texts.get(words, "–") for words in results.circumstances)] for name, texts in found.items()]
    return [column.head, *map(shown, results.circumstances)], rows


def show(results: StudyResults) -> None:
    """Print the table and the sentences to stdout. If stdout is not a terminal, it is as wide as its content needs."""
    heads, rows = cells(results)
    first = len(heads) - len(columns(results))
    stacks = [*(str(number) for number in range(first)), *(each.stack for each in columns(results))]
    shown_rows = (row if len(row) == 1 else stacked(row, stacks) for row in rows)
    text_tables.show(
        table_of(stacked(heads, stacks), shown_rows, has_lines=True), f"{title(results)}: {caption(results)}"
    )
    for sentence in sentences(results):
        console().print(shown(sentence), soft_wrap=True, highlight=False)


def stacked(row: list[str], stacks: list[str]) -> list[str]:
    """Return a row with the columns of each stack as one."""
    lines: dict[str, list[str]] = {}
    for stack, text in zip(stacks, row, strict=True):
        lines.setdefault(stack, []).append(text)
    return ["\n".join(each) for each in lines.values()]


def markdown(results: StudyResults) -> str:
    """Return the table in Markdown, with the sentences below it."""
    said = (f"- {in_markdown(sentence)}" for sentence in sentences(results))
    return "\n".join([text_tables.markdown(*cells(results)), "", *said])


def html(results: StudyResults) -> str:
    """Return the table as HTML, with its title above and the sentences below it."""
    said = "".join(f"<li>{escape(shown(sentence))}</li>\n" for sentence in sentences(results))
    return f"<p>{escape(title(results))}: {escape(caption(results))}</p>\n{table(*cells(results))}<ul>\n{said}</ul>\n"


def latex(results: StudyResults) -> str:
    """Return the table in LaTeX, with a note in it on how a cell is to be read."""
    heads, rows = _by_variant(results)
    return latex_table(heads, rows, f"Figures: {_reading(results)}")


def latex_table(heads: list[str], rows: list[list[str]], note: str) -> str:
    """Return a table in LaTeX, for the package booktabs. A row of one cell is a heading above those that follow.

    A heading of a column has as many lines as it takes not to be wider than the column, and so has the note: a cell
    that spans all columns and is wider than they are makes the last one wider.
    """
    texts = 2 if heads[0] == "variant" else 1
    whole_rows = [row for row in rows if len(row) > 1]
    widths = [
        max(min(len(head), MIN_HEAD), *map(len, column))
        for head, column in zip(heads, zip(*whole_rows, strict=True), strict=True)
    ]
    sides = ["l"] * texts + ["r"] * (len(heads) - texts)
    top = " & ".join(_latex_head(*each) for each in zip(heads, widths, sides, strict=True))
    span = rf"\multicolumn{{{len(heads)}}}{{l}}"
    body = []
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and len(before) > 1 and (len(row) == 1 or (texts == 2 and row[0])):
            body.append(r"\addlinespace")
        line = rf"{span}{{\emph{{{_latex(row[0])}}}}}" if len(row) == 1 else " & ".join(map(_latex, row))
        body.append(rf"{line} \\")
    begin = rf"\begin{{tabular}}{{{''.join(sides)}}}"
    whole = sum(widths) + 2 * len(widths)  # in characters, with the space between columns
    notes = [rf"{span}{{\footnotesize {_latex(each)}}} \\" for each in wrap(note, whole)]
    lines = [begin, r"\toprule", rf"{top} \\", r"\midrule", *body, r"\bottomrule", *notes, r"\end{tabular}"]
    return "\n".join(lines)


def _by_variant(results: StudyResults) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows, cells in one line. Where variants have several rows, only the first has its name."""
    heads, found = cells(results)
    rows = [[" ".join(each.splitlines()) for each in row] for row in found]
    variants = {cell.name: cell.variant for cell in results.plan.cells}
    parts = [[variants[row] for row in members] for members in results.circumstances.values()]
    if len(set(variants.values())) == 1 or not any(len(set(part)) < len(part) for part in parts):
        return heads, rows
    whole_rows = iter([row for row in rows if len(row) > 1])
    for members in results.circumstances.values():
        before = None
        for row, name in members.items():
            setting = shown(name.removeprefix(f"{variants[row]}, "))
            next(whole_rows)[:1] = ["" if variants[row] == before else shown(variants[row]), setting]
            before = variants[row]
    return ["variant", "setting", *heads[1:]], rows


def csv(frame: pd.DataFrame) -> str:
    """Return a data frame as CSV, safe to print, in which no text is a formula to a spreadsheet."""
    safe = frame.copy()
    for name in frame.select_dtypes(exclude=["number", "bool"]):
        safe[name] = frame[name].map(_csv)
    return safe.rename(columns=_csv).to_csv(index=False)


def title(results: StudyResults) -> str:
    """Return the title of the table and of the page."""
    return shown(results.plan.study.description or results.plan.study.name)


def caption(results: StudyResults) -> str:
    """Return of how many runs the table is, and how a cell is to be read."""
    return f"{counted(sum(map(len, results.members.values())), 'run')}; {_reading(results)}"


def _reading(results: StudyResults) -> str:
    """Return how a cell is to be read."""
    if len(results.plan.study.seeds) == 1:
        return "one seed, so without a deviation and an interval"
    level = f"{100 * results.plan.study.ask.confidence:.6g}%"
    interval = f"{level} interval of the mean, the wider of Student's and the bootstrap's"
    return f"mean ± standard deviation over seeds, [{interval}]"


def _cell(mean: Mean | None, column: Column, runs: int) -> str:
    if mean is None:
        return "–"
    if mean.seeds < runs:  # a mean over only some of the runs would mislead
        return f"{mean.seeds} of {runs} runs"
    text = column.written(mean.mean, mean.deviation)
    if column.has_interval and mean.low is not None and mean.high is not None and mean.low < mean.high:
        factor, _, places = column.unit(mean.mean)
        text += f"\n[{_plain(factor * mean.low, places)}, {_plain(factor * mean.high, places)}]"
    return text


def _plain(number: float, places: int) -> str:
    return f"{number:,.{places}f}" if abs(number) < MAX_PLAIN else f"{number:.3g}"


def with_value(value: float, unit: Unit) -> str:
    """Return a value with its unit."""
    factor, name, places = unit(value)
    return with_unit(_plain(factor * value, places), name)


def unit_of(metric: str) -> Unit:
    return _share if is_share(metric) else number


def _share(value: float) -> tuple[float, str, int]:
    return 100, "%", 2


def number(value: float) -> tuple[float, str, int]:
    return 1, "", max(0, 3 - math.floor(math.log10(abs(value)))) if value else 1


def count(value: float) -> tuple[float, str, int]:
    return 1, "", 0 if value >= 100 else 1


def size(value: float) -> tuple[float, str, int]:
    unit, name = byte_unit(value)
    return 1 / unit, name, 0 if name == "B" else 2


def seconds(value: float) -> tuple[float, str, int]:
    return 1, "s", 1


_OF_ROUNDS = [
    Column("reports a round", "reports_per_round", lambda value: (1, "", 1), "rounds"),
    Column("rounds without a commit", "rounds_without_commit", count, "rounds"),
    Column("late reports", "late_reports", count, "rounds"),
]
"""What faults do to rounds; shown of a study with any."""


def _latex_head(head: str, width: int, side: str) -> str:
    """Return a heading in lines of about equal length, so many that they are no longer than a column's widest cell."""
    most = math.ceil(len(head) / width)
    wrapped = (wrap(head, length, break_long_words=False) for length in range(1, len(head) + 1))
    lines = next(lines for lines in wrapped if len(lines) <= most)
    stacked = r" \\ ".join(map(_latex, lines))
    return rf"\shortstack[{side}]{{{stacked}}}" if len(lines) > 1 else stacked


def _latex(text: str) -> str:
    text = re.sub(r"(?<![\w.])-(?=[\d.])", "−", text)  # of a number; between letters it is a hyphen
    # at the beginning of a line these would be options of the `\\` or the `\midrule` before it
    begins = "{}" if text.lstrip().startswith(("[", "*")) else ""
    return begins + "".join(_LATEX.get(character, character) for character in text)


def _csv(value: Any) -> Any:
    """Return a cell; what is no text remains as it is."""
    if not isinstance(value, str):
        return value
    text = printable(value, len(value))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
