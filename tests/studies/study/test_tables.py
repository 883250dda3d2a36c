"""The tables of a study show names as text wherever they are opened: a terminal, a spreadsheet, LaTeX, a page."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import Command
from worlds import TINY

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.looks import looks
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.circumstances import circumstances
from seedbus.studies.study.estimate import Estimate
from seedbus.studies.study.finished_runs import RowRun
from seedbus.studies.study.plots import plots
from seedbus.studies.study.remarks import sentences
from seedbus.studies.study.results import Failure, StudyResults
from seedbus.studies.study.study import study
from seedbus.studies.study.study_page import write_report
from seedbus.studies.study.tables import cells, csv, latex, markdown
from seedbus.studies.study.trials import Trial, Tuned

ESCAPE = "\x1b]0;title\x07\u202e"
STUDY: dict[str, Any] = {
    "name": "odd",
    "base": TINY,
    "seeds": [1],
}


def empty(folder: Path, metric: str = "loss", **changes: Any) -> StudyResults:
    """Return a study without runs."""
    plan = plan_of(STUDY | changes)
    return StudyResults(folder, plan, metric, {cell.name: [] for cell in plan.cells})


def ended(final: float | None, sent: float, **figures: float | None) -> RowRun:
    """Return a run that has nothing but figures."""
    stand_in: Any = SimpleNamespace(
        folder="run",
        divergence="",
        rounds=[],
        lines=[],
        sent=[],
        caught_up=[],
        times=[],
        passes_before=[],
        results=None,
        values=lambda metric: [],
        shortcomings=lambda metric: [],
    )
    return RowRun(1, stand_in, {"final": final, "bytes": sent, **figures})


def named(*names: str) -> dict[str, Any]:
    return {name: {"algorithm.learning_rate": 0.01 + number} for number, name in enumerate(names)}


def is_clean(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def test_all_tables_are_safe_to_print_and_are_written_so(tmp_path: Path, seedbus: Command) -> None:
    row = f"a{ESCAPE}"
    odd = {
        "variants": named(row, "b"),
        "claim": f"c{ESCAPE}",
        "source": ESCAPE,
        "expect": [{"row": row, "at_least": 0}],
    }
    Path("odd.yaml").write_text(dump(STUDY | odd))
    for output in ("text", "csv", "markdown", "latex", "json"):
        printed = seedbus("study", "odd.yaml", "--so-far", "-q", "--format", output)
        assert printed.code == Exit.OK and is_clean(printed.out) and "title" in printed.out, output
    for path in Path("studies/odd").iterdir():
        if path.suffix in (".csv", ".md", ".tex"):
            assert is_clean(path.read_text(encoding="utf-8")), path


def test_what_was_tuned_and_what_failed_are_safe_to_print(tmp_path: Path) -> None:
    results = empty(tmp_path, tune={"description": [ESCAPE]})
    results.tuned["tiny"] = Tuned([Trial({"description": ESCAPE}, 1.0)], {"description": ESCAPE}, ["description"])
    results.failures.append(Failure("tiny", 1, f"two\nlines{ESCAPE}"))
    assert all(is_clean(text) for row in cells(results)[1] for text in row)
    assert all(text.isprintable() for text in sentences(results)) and "failed: tiny, seed 1: two lines" in str(
        sentences(results)
    )
    assert is_clean(csv(results.trials)) and is_clean(markdown(results))


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t=", "\r@", " -"])
def test_no_text_is_a_formula_to_a_spreadsheet_and_numbers_are_numbers(begin: str) -> None:
    frame = pd.DataFrame({"row": [f"{begin}1+1", "a-b"], "x": [-3.2, 1e-9], "n": [-1, 2], "b": [True, False]})
    frame[f"{begin}head"] = pd.Series([-1, "-1"])
    clean = begin.replace("\t", " ").replace("\r", " ")
    assert csv(frame).splitlines() == [
        f"row,x,n,b,'{clean}head",
        f"'{clean}1+1,-3.2,-1,True,-1",
        "a-b,1e-09,2,False,'-1",
    ]
    assert list(frame["row"]) == [f"{begin}1+1", "a-b"], "the frame itself, and its Parquet file, have the names"


def test_an_ordinary_table_is_written_as_pandas_writes_it() -> None:
    frame = pd.DataFrame({"row": ["a, b", 'c"d'], "x": [0.1, None], "who": ["é", None], "none": [None, None]})
    assert csv(frame) == frame.to_csv(index=False)
    for nothing in (frame[:0], pd.DataFrame()):
        assert csv(nothing) == nothing.to_csv(index=False)


def test_no_cell_is_an_option_or_a_command_of_latex(tmp_path: Path) -> None:
    results = empty(tmp_path, variants=named("[9pt] a", "* b", "\x1b[2J c", r"\input{x} $ & % # _ ^ ~ <|> ÷ −"))
    lines = latex(results).splitlines()
    rows = [line.partition(" & ")[0] for line in lines[4 : lines.index(r"\bottomrule")]]
    assert rows == [
        "{}[9pt] a",
        "{}* b",
        "{} [2J c",
        r"\textbackslash{}input\{x\} \$ \& \% \# \_ \textasciicircum{} \textasciitilde{} "
        r"\textless{}\textbar{}\textgreater{} $\div$ $-$",
    ]


def test_a_table_in_latex_repeats_no_label_widens_no_column_and_has_minus_signs(tmp_path: Path) -> None:
    grid = {"participation.deadline_s": [9], "algorithm.momentum": [0.1, 0.5]}
    results = empty(tmp_path, variants=named("non-IID", "b"), grid=grid, seeds=[1, 2])
    for members in results.members.values():
        members += [replace(ended(-0.5, 100, last=-0.25), seed=seed) for seed in (1, 2)]
    lines = latex(results).splitlines()
    assert lines[0] == r"\begin{tabular}{llrrrrrr}"
    assert [line.split(" & ")[:4] for line in lines if "&" in line or "space" in line] == [
        ["variant", "setting", "seeds", r"\shortstack[r]{loss, \\ average at \\ the end}"],
        ["non-IID", "momentum 0.1", "2", "$-$0.5000"],
        ["", "momentum 0.5", "2", "$-$0.5000"],
        [r"\addlinespace"],
        ["b", "momentum 0.1", "2", "$-$0.5000"],
        ["", "momentum 0.5", "2", "$-$0.5000"],
    ]
    note = [line for line in lines if line.startswith(r"\multicolumn")]
    assert len(note) == 2 and all(len(line) < 130 for line in note), "in one line it would widen the last column"


def test_values_of_several_kinds_are_one_column_of_text(tmp_path: Path) -> None:
    others = {"algorithm.dampening": [True, False], "algorithm.learning_rate": [1, 0.5]}
    results = empty(tmp_path / "odd", grid={"participation.deadline_s": [None, 5.5]} | others)
    write_report(results)
    table = pd.read_parquet(tmp_path / "odd" / "table.parquet")
    assert set(table["participation.deadline_s"]) == {"None", "5.5"}
    assert table["algorithm.dampening"].dtype == bool and table["algorithm.learning_rate"].dtype == float


def test_a_column_without_any_value_is_one_of_numbers_too(tmp_path: Path) -> None:
    results = empty(tmp_path)
    results.members["tiny"].append(ended(0.5, 100, rounds_to_target=None))
    for frame in (results.runs, results.table):
        kinds = {name: frame[name].dtype for name in frame if str(name).startswith(("final", "rounds_to_target"))}
        assert set(kinds.values()) <= {np.dtype(float), np.dtype(int)}, kinds


@pytest.mark.parametrize(
    ("rows", "confidence", "told"),
    [
        (3, 0.95, "3 pairs at 95% each, so that one of them, with a probability of up to 15%, may"),
        (21, 0.95, "210 pairs at 95% each, so that 11 of them may"),
        (3, 0.995, "3 pairs at 99.5% each, so that one of them, with a probability of up to 1.5%, may"),
    ],
)
def test_the_intervals_are_named_by_their_confidence_and_by_how_many_may_be_wrong(
    tmp_path: Path, rows: int, confidence: float, told: str
) -> None:
    results = empty(tmp_path, variants=named(*map(str, range(rows))), ask={"confidence": confidence}, seeds=[1, 2])
    for members in results.members.values():
        members += [replace(ended(0.5, 100), seed=seed) for seed in (1, 2)]
    assert f"paired over seeds; {told} seem to differ by chance:" in sentences(results)[0]


def test_a_table_and_its_sentences_say_what_was_measured_in_its_units(tmp_path: Path) -> None:
    ask = {"at": [10], "target": 0.75, "splits": ["train"]}
    results = empty(tmp_path, "accuracy", variants=named("a", "b", "c"), seeds=[1, 2, 3], ask=ask)
    finals = {"a": (0.80, 0.82, 0.81), "b": (0.70, 0.73, 0.70), "c": (0.79, 0.82, 0.83)}
    for row, values in finals.items():
        for seed, final in enumerate(values, 1):
            figures = {
                "last": final - 0.5, "train_accuracy": final - 0.4, "at_10": final - 0.3, "at_10_ema": final - 0.2,
                "rounds_to_target": None if row == "b" else 4.0 + seed, "bytes_to_target": 1000.0 * seed,
                "simulated_s_to_target": 7.0, "simulated_s": 10.0 * seed, "forward_passes": 1234.0,
            }  # fmt: skip
            results.members[row].append(replace(ended(final, 2e6 * seed, **figures), seed=seed))
    heads, rows = cells(results)
    assert dict(zip(heads, rows[0], strict=True)) == {
        "row": "a", "seeds": "3", "accuracy, average at the end": "81.00 ± 1.00%\n[78.52, 83.48]",
        "last value": "31.00 ± 1.00%", "last model on train": "41.00 ± 1.00%",
        "at 10": "51.00 ± 1.00%", "average at 10": "61.00 ± 1.00%",
        "rounds to 0.75": "6.0 ± 1.0", "bytes to it": "2.00 ± 1.00 kB", "simulated time to it": "7.0 s",
        "bytes": "4.00 ± 2.00 MB", "simulated time": "20.0 ± 10.0 s", "forward passes": "1,234",
    }  # fmt: skip
    assert rows[1][heads.index("rounds to 0.75")] == "–", "no run of b has it"
    # of a − b the standard deviation is 1 point, and Student's t of two degrees of freedom 4.303: ± 4.303 / √3
    assert sentences(results)[1:] == [
        "c is better than b by 10.33 points [4.596, 16.07]",
        "a is better than b by 10 points [7.516, 12.48]",
        "not settled at 3 seeds: a − c = -0.3333 points [-4.128, 3.461]",
        "Pareto front of accuracy against bytes: c",
        "not seen to be worse than a row of the front, with equal bytes or fewer: a",
    ]
    better = results.differences.set_index(["row", "other"])["better"].to_dict()
    assert better == {("a", "b"): "a", ("a", "c"): "", ("b", "c"): "c"}
    in_latex = latex(results)
    assert r"a & 3 & 81.00 $\pm$ 1.00\% [78.52, 83.48] & 31.00 $\pm$ 1.00\% &" in in_latex
    assert r"$\pm$ 2.00 MB" in in_latex
    reading = r"mean $\pm$ standard deviation over seeds, [95\% interval of the mean, the wider of Student's and"
    assert rf"\multicolumn{{{len(heads)}}}{{l}}{{\footnotesize Figures: {reading}" in in_latex
    assert r" & \shortstack[r]{simulated \\ time to it} & " in in_latex and " & average at 10 & " in in_latex


@pytest.mark.slow
def test_each_of_several_targets_has_its_own_figures_columns_and_claims(tmp_path: Path) -> None:
    targets = [5, 4.5, -1.0]  # it begins at 5.1 and 6.7, and is never below 0
    fast = {"algorithm": {"name": "decomfl", "learning_rate": 0.1}, "stop": {"rounds": 12}, "evaluation": {"every": 1}}
    asked = {"base": TINY | fast, "seeds": [1, 2], "name": "several"}
    claim = {"claim": "it falls", "expect": [{"row": "tiny", "figure": "rounds_to_4.5", "at_least": -99}]}
    found = study(STUDY | asked | claim | {"ask": {"target": targets}}, tmp_path)
    alone = [study(STUDY | asked | {"ask": {"target": target}}, tmp_path) for target in targets]
    costs = ("rounds", "bytes", "bytes_up", "bytes_down", "catchup_bytes", "simulated_s")
    for each, name in zip(alone, ("5", "4.5", "-1"), strict=True):
        for cost in costs:
            assert found.runs[f"{cost}_to_{name}"].equals(each.runs[f"{cost}_to_target"].rename(f"{cost}_to_{name}"))
    first, second, never = (found.runs[f"rounds_to_{name}"] for name in ("5", "4.5", "-1"))
    assert (0 < first).all() and (first < second).all() and never.isna().all()
    heads, (row,) = cells(found)
    shown = [f"{cost} to {name}" for name in ("5", "4.5", "-1") for cost in ("rounds", "bytes", "simulated time")]
    assert heads[4:13] == shown and row[10:13] == ["–"] * 3 and "–" not in row[4:10]
    assert all(f"| {head} |" in markdown(found) for head in shown)
    assert all(rf"\shortstack[r]{{rounds \\ to {name}}} &" in latex(found) for name in ("5", "4.5", "$-$1"))
    assert not {f"{cost}_to_target" for cost in costs} & set(found.figures)
    assert found.json()["rows"][0]["figures"]["rounds_to_4.5"]["mean"] == second.mean()
    assert {*found.verdicts.values()} == {"holds"}


def test_a_large_number_of_bytes_is_written_in_its_unit(tmp_path: Path) -> None:
    results = empty(tmp_path, seeds=[1, 2])
    results.members["tiny"] += [replace(ended(0.5, sent), seed=seed) for seed, sent in enumerate((2e9, 4e9), 1)]
    heads, (row,) = cells(results)
    assert row[heads.index("bytes")] == "3.00 ± 1.41 GB"


def test_at_equal_bytes_rows_are_compared_that_have_values_there_in_all_runs(tmp_path: Path) -> None:
    ask = {"at": [10, "1.5 MB"], "together": True}
    results = empty(tmp_path, "accuracy", variants=named("a", "b", "c"), seeds=[1, 2, 3], ask=ask)
    values = {"a": (0.80, 0.82, 0.81), "b": (0.70, 0.73, 0.70), "c": (0.79, None, 0.83)}
    for row, found in values.items():
        for seed, value in enumerate(found, 1):
            at = {"at_1.5MB": value, "at_1.5MB_ema": value, "at_1.5MB_bytes": value and 1e6 + 1e5 * seed}
            results.members[row].append(replace(ended(0.5, 2e6, at_10=0.1, at_10_ema=0.1, **at), seed=seed))
    heads, rows = cells(results)
    cell = [row[heads.index("at 1.5 MB")] for row in rows]
    assert cell == ["81.00 ± 1.00%", "71.00 ± 1.73%", "2 of 3 runs"]
    assert "average at 1.5 MB" in heads and "at 10" in heads
    # Student's for one of six pairs, three by each figure: t of two degrees of freedom at 1 − 0.05 / 12 is 10.886
    assert sentences(results)[2:6] == [
        "Differences in accuracy (at 1.5 MB), paired over seeds; 1 pair at 95% together:",
        "a is better than b by 10 points [3.715, 16.28]",
        "not every run has a value at 1.5 MB: c",
        "a value at 1.5 MB is that of the last evaluation before; a's at 1.10 MB is the earliest",
    ]
    frame = results.differences
    assert list(zip(frame["row"], frame["other"], frame["figure"], frame["better"], strict=True)) == [
        ("a", "b", "final", ""), ("a", "c", "final", ""), ("b", "c", "final", ""), ("a", "b", "at_1.5MB", "a"),
    ]  # fmt: skip
    assert [each["figure"] for each in results.json()["differences"]] == list(frame["figure"])


def test_at_an_equal_time_rows_are_compared_as_at_equal_bytes(tmp_path: Path) -> None:
    results = empty(tmp_path, "accuracy", variants=named("a", "b"), seeds=[1, 2, 3], ask={"at": ["10 min"]})
    for row, values in {"a": (0.80, 0.82, 0.81), "b": (0.70, 0.73, 0.70)}.items():
        for seed, value in enumerate(values, 1):
            at = {"at_10min": value, "at_10min_ema": value, "at_10min_simulated_s": 590.0 + seed}
            results.members[row].append(replace(ended(0.5, 2e6, **at), seed=seed))
    heads, _ = cells(results)
    assert "at 10 min" in heads and "average at 10 min" in heads
    assert sentences(results)[2:5] == [
        "Differences in accuracy (at 10 min), paired over seeds; 1 pair at 95%, so that it, with a "
        "probability of up to 5%, may seem to differ by chance:",
        "a is better than b by 10 points [7.516, 12.48]",
        "a value at 10 min is that of the last evaluation before; a's at 591.00 s is the earliest",
    ]


def test_a_curve_is_the_mean_over_seeds_in_a_band_of_its_deviation_at_the_rounds_that_all_have(tmp_path: Path) -> None:
    results = empty(tmp_path, seeds=[1, 2])
    for seed, losses in ((1, [9.0, 4.0, 2.0]), (2, [9.0, 6.0, 8.0, 1.0])):
        more: dict[str, Any] = {
            "rounds": [5 * number for number in range(len(losses))],
            "times": [2.0 * seed * number for number in range(len(losses))],
            "sent": [3000 * seed * number for number in range(len(losses))],
            "passes_before": [10.0 * seed * number for number in range(len(losses))],
            "values": lambda metric, losses=losses: losses,
        }
        stand_in: Any = SimpleNamespace(**vars(ended(1.0, 1.0).run) | more)
        results.members["tiny"].append(replace(ended(losses[-1], 9000.0 * seed), seed=seed, run=stand_in))
    drawn = {plot.name: plot for plot in plots(results)}
    x = {name: np.asarray(plot.drawn[0].x).tolist()[1:] for name, plot in drawn.items()}
    assert x == {
        "loss-over-rounds": [5, 10],
        "loss-over-bytes": [4.5, 9.0],  # kB, the mean of 3 and 6, and of 6 and 12
        "loss-over-simulated-time": [3, 6],
        "loss-over-forward-passes": [15, 30],
    }
    for plot in drawn.values():
        line: Any = plot.drawn[0]
        deviation = np.array([0, 2**0.5, 18**0.5])  # of 9 and 9, of 4 and 6, and of 2 and 8
        for found, expected in ((line.y, 0), (line.low, -deviation), (line.high, deviation)):
            assert np.allclose(found, np.array([9, 5, 5]) + expected)


def test_a_value_of_0_that_was_tried_is_drawn(tmp_path: Path) -> None:
    results = empty(tmp_path, tune={"algorithm.momentum": [0.0, 0.5]})
    trials = [Trial({"algorithm.momentum": momentum}, 1.0 + momentum) for momentum in (0.0, 0.5)]
    results.tuned["tiny"] = Tuned(trials, trials[0].values, [])
    (plot,) = plots(results)
    x: Any = plot.drawn[0].x
    assert (list(x), plot.is_log, plot.x_name) == ([0.0, 0.5], False, "algorithm.momentum")


def test_rows_whose_best_value_was_tried_beside_far_ones_are_told_in_one_line(tmp_path: Path) -> None:
    results = empty(tmp_path, tune={"algorithm.learning_rate": [0.01, 0.1]})
    trials = [Trial({"algorithm.learning_rate": rate}, 1.0 - rate) for rate in (0.01, 0.1)]
    results.tuned["tiny"] = Tuned(trials, trials[1].values, [], {"algorithm.learning_rate": [0.01, 1.0]})
    (told,) = (each for each in sentences(results) if "a factor of ten" in each)
    assert told.endswith("a better one may lie between: tiny (learning_rate 0.1 beside 0.01 and 1.0)")


def test_rows_whose_best_value_is_within_the_noise_of_the_second_best_are_told_in_one_line(tmp_path: Path) -> None:
    """Of 50 samples a share of 1/2 has a standard error of 7 points; three seeds have one of their differences, too."""
    rate = "algorithm.learning_rate"

    def trials(*finals: tuple[float, ...], step: float = 0.02) -> Tuned:
        found = [Trial({rate: 0.1 * 2**n}, sum(each) / len(each), each, step) for n, each in enumerate(finals)]
        return Tuned(found, max(found, key=lambda trial: trial.score).values, [])

    rows = {
        "near": trials((0.44,), (0.5,), (0.2,)),
        "far": trials((0.42,), (0.5,)),
        "exact": trials((0.42,), (0.5,), step=1e-4),
        "seeds": trials((0.3, 0.5, 0.4), (0.6, 0.4, 0.5), step=1e-4),
        "paired": trials((0.3, 0.5, 0.4), (0.4, 0.6, 0.5), step=1e-4),
        "alone": trials((0.5,)),
    }
    results = empty(tmp_path, "accuracy", variants=named(*rows), tune={rate: [0.1, 0.2]})
    results.tuned.update(rows)
    (told,) = [sentence for sentence in sentences(results) if "within one standard error" in sentence]
    near = "near (learning_rate 0.2: 50% and learning_rate 0.1: 44%; may gain 7.9 points)"  # 1.96 of 7.07, less 6
    seeds = "seeds (learning_rate 0.2: 50% and learning_rate 0.1: 40%; may gain 40 points)"  # 4.303 of 11.5, less 10
    knows = "intervals of its differences from rows with other values are as much wider"
    assert f"within one standard error of it: {near}; {seeds}; {knows}" in told
    seconds = results.trials[results.trials["is_second"]]
    assert dict(zip(seconds["row"], seconds["score"], strict=True)) == pytest.approx(
        {"near": 0.44, "far": 0.42, "exact": 0.42, "seeds": 0.4, "paired": 0.4}
    )


@pytest.mark.slow
def test_what_is_to_be_known_of_settings_is_told_once_with_its_rows_before_the_runs_and_in_the_report(
    tmp_path: Path, seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    robust = {"algorithm": {"name": "scaffold", "aggregation": "median"}}
    rows = {f"a{number}": robust | {"stop.rounds": 50 + number} for number in range(22)}
    idle: dict[str, Any] = {
        "base": TINY | {"faults": [{"fault": "duplicate", "kind": "snapshot"}]},
        "variants": rows | {"plain": []},
    }
    results = empty(tmp_path, **idle)
    told = [sentence for sentence in sentences(results) if sentence.startswith("note: ")]
    first = "; ".join(f"a{number}" for number in range(20))
    of_rows = f"which a single malicious client can shift ({first}; and 2 more)"
    of_all = "faults.0 strikes nothing: without lag no message of the kind snapshot is sent (all rows)"
    assert len(told) == 2 and told[0].endswith(of_rows) and told[1] == f"note: {of_all}"
    Path("study.yaml").write_text(dump(STUDY | idle))
    nothing = Estimate(0.0, 0.0)
    monkeypatch.setattr("seedbus.studies.study.estimate.estimate", lambda *_: (nothing, nothing))
    before = seedbus("study", "study.yaml", "--dry-run").err
    assert before.count("note: ") == 2 and f"seedbus: note: {of_all}\n" in before and of_rows in before


def test_a_chosen_value_with_which_a_run_learnt_nothing_is_told_with_its_row_and_seeds(tmp_path: Path) -> None:
    rate = "algorithm.learning_rate"
    results = empty(tmp_path, variants={"good": [], "bad": ["stop.rounds=3"]}, tune={rate: [0.1, 0.9]}, seeds=[1, 2, 3])
    for row in ("good", "bad"):
        results.tuned[row] = Tuned([Trial({rate: 0.9}, 0.1)], {rate: 0.9}, [])
        results.members[row] = [replace(ended(0.5, 100), seed=seed) for seed in (1, 2, 3)]
    worse: Any = SimpleNamespace(**vars(results.members["bad"][0].run) | {"shortcomings": lambda metric: ["worse"]})
    results.members["bad"][0] = replace(results.members["bad"][0], run=worse)
    results.members["bad"][2].figures["final"] = None  # as of a run that diverged
    told = [sentence for sentence in sentences(results) if "was chosen by trials" in sentence]
    assert told == [
        f"bad: {rate} 0.9 was chosen by trials with seed 1, and did not hold in the runs of seeds 1, 3 (2 of 3); "
        "`tuning` with more seeds or rounds may choose better"
    ]


def test_the_front_has_every_row_that_no_other_is_better_than(tmp_path: Path) -> None:
    figures = {"worse": (0.6, 100), "same": (0.5, 100), "alike": (0.5, 100), "dear": (0.5, 200), "best": (0.4, 300)}
    results = empty(tmp_path, variants=named(*figures))
    for row, (final, sent) in figures.items():
        results.members[row].append(ended(final, sent))
    assert results.front == ["alike", "same", "best"], "two rows that are equal do not beat each other"
    assert list(results.table["is_on_front"]) == [False, True, True, False, True]


def test_rows_under_different_circumstances_share_no_front(tmp_path: Path) -> None:
    """Crashes, links and clients are not a method's choice; what it computes and how long it trains is."""
    crash = [{"fault": "crash", "probability": 0.1}]
    grid = {"faults": [[], crash], "participation.cohort": [2, 3]}
    grid |= {"participation.deadline_s": [9], "stop.rounds": [5, 10]}
    results = empty(tmp_path, variants=named("a", "b"), grid=grid)
    for number, members in enumerate(results.members.values()):
        members.append(ended(1.0 - 0.01 * number, 100.0 + number))  # each row is better than those before, and dearer
    assert [len(rows) for rows in results.fronts.values()] == [4, 4, 4, 4]
    assert list(results.fronts) == [f"{f}, cohort {m}" for f in ("no faults", "crash") for m in (2, 3)]
    for words, rows in results.fronts.items():
        assert all(part in row for row in rows for part in words.split(", "))
    told = [each for each in sentences(results) if each.startswith("Pareto front")]
    assert told[0].startswith("Pareto front of loss against bytes, no faults, cohort 2: a, ") and len(told) == 4
    (plot,) = plots(results)
    assert [line.panel for line in plot.drawn[16:]] == list(results.fronts)
    assert {line.name for line in plot.drawn[16:]} == {"Pareto front"}
    alone = empty(tmp_path, grid={"faults": [[], crash], "participation.deadline_s": [9]})
    for members in alone.members.values():
        members.append(ended(0.5, 100))
    assert not alone.fronts and not any("Pareto" in each for each in sentences(alone)), (
        "each is the only one of its kind"
    )


def test_a_grid_may_set_a_section_and_fields_of_it(tmp_path: Path) -> None:
    cohorts = {"participation": [{"clients": 6}, {"clients": 8}], "participation.cohort": [2, 3]}
    cells = empty(tmp_path, variants=named("a", "b"), grid=cohorts).plan.cells
    assert sorted({*circumstances(cells).values()}) == [f"clients {n}, cohort {m}" for n in (6, 8) for m in (2, 3)]
    assert [cell.point["participation"] for cell in cells[::2]] == [{"clients": 6}, {"clients": 8}] * 2
    sizes = {"task": ["digits"], "task.batch_size": [8, 16]}
    assert [*circumstances(empty(tmp_path, grid=sizes).plan.cells).values()] == ["batch_size 8", "batch_size 16"]
    few = {"algorithm": {"plain": "decomfl", "second": "hiso"}, "algorithm.learning_rate": [0.1, 0.2]}
    rows = [f"{method}, learning_rate {rate}" for method in ("plain", "second") for rate in (0.1, 0.2)]
    assert [cell.name for cell in empty(tmp_path, grid=few).plan.cells] == rows


def test_values_of_a_grid_may_have_names_which_rows_and_columns_then_have(tmp_path: Path) -> None:
    crash = [{"fault": "crash", "probability": 0.1}]
    grid = {"faults": {"calm": [], "crashes": crash}, "participation.cohort": {"few": 2, "many": 3}}
    grid |= {"participation.deadline_s": {"9 s": 9}, "algorithm.learning_rate": [0.1, 0.2]}
    results = empty(tmp_path, variants=named("a"), grid=grid)
    assert list(results.members)[:3] == [
        "a, calm, few, 9 s, learning_rate 0.1", "a, calm, few, 9 s, learning_rate 0.2",
        "a, calm, many, 9 s, learning_rate 0.1",
    ]  # fmt: skip
    for members in results.members.values():
        members.append(ended(0.5, 100))
    assert list(results.fronts) == [f"{f}, {m}, 9 s" for f in ("calm", "crashes") for m in ("few", "many")]
    scenario = results.plan.cells[-1].scenario
    assert (scenario.participation.cohort, len(scenario.faults), scenario.participation.deadline_s) == (3, 1, 9)
    last = results.table.iloc[-1]
    assert (last["faults"], last["participation.cohort"], last["algorithm.learning_rate"]) == ("crashes", "many", 0.2)


def test_rows_that_differ_by_their_variants_faults_share_no_front(tmp_path: Path) -> None:
    crash = {"faults": [{"fault": "crash", "probability": 0.1}]}
    rates = {"algorithm.learning_rate": [0.1, 0.2], "participation.deadline_s": [9]}
    results = empty(tmp_path, variants={"calm": [], "crash": crash, "few": {"participation.cohort": 2}}, grid=rates)
    for members in results.members.values():
        members.append(ended(0.5, 100))
    assert {words: len(rows) for words, rows in results.fronts.items()} == {"no faults": 4, "crash": 2}


def test_rows_of_variants_with_other_data_or_numbers_of_clients_share_no_front(tmp_path: Path) -> None:
    """With which batches and cohorts a method trains is its choice; data, model and number of clients are not."""
    digits: dict[str, Any] = {"base": TINY | {"task": {"name": "digits", "model": "softmax"}}}
    variants = {
        "small": {}, "large": {"task.dimension": 40}, "large, fast": {"task.dimension": 40, "algorithm.local_steps": 2},
        "crowd": {"participation.clients": 9}, "pair": {"participation.cohort": 2},
        "digits": digits, "batches of 8": digits | {"task.batch_size": 8}, "CNN": digits | {"task.model": "cnn"},
    }  # fmt: skip
    results = empty(tmp_path, variants=variants, grid={"participation.deadline_s": [9]})
    for members in results.members.values():
        members.append(ended(0.5, 100))
    assert results.fronts == {
        "quadratic, dimension 20, clients 4": ["pair", "small"],
        "quadratic, dimension 40, clients 4": ["large", "large, fast"],
        "digits, model softmax, clients 4": ["batches of 8", "digits"],
    }


def test_one_sample_more_with_every_seed_is_no_difference_and_no_claim_but_a_byte_is(tmp_path: Path) -> None:
    claim = {"claim": "more", "expect": [
        {"row": "b", "minus": "a", "at_least": 1e-6}, {"row": "c", "minus": "a", "at_least": 1e-6},
        {"row": "b", "minus": "a", "figure": "bytes", "at_least": 1, "at_most": 1},
    ]}  # fmt: skip
    results = empty(tmp_path, "accuracy", variants=named("a", "b", "c"), seeds=[1, 2, 3], **claim)
    for row, more in {"a": 0, "b": 1, "c": 2}.items():
        for seed in (1, 2, 3):
            right = [30, None, 200 + seed, 250 + seed + more]
            values = [math.nan if each is None else each / 297 for each in right]
            run: Any = SimpleNamespace(**vars(ended(0.0, 1.0).run) | {"values": lambda metric, values=values: values})
            results.members[row].append(replace(ended(values[-1], 1000.0 + more), seed=seed, run=run))
    assert results.steps == {row: pytest.approx(1 / 297) for row in "abc"}
    assert [each.verdict for each in results.judged] == ["not settled", "holds", "holds"]
    told = sentences(results)
    near = "-0.3367 points [-0.6782, 0.004763]"
    assert f"not settled at 3 seeds: a − b = {near}; b − c = {near}" in told
    assert any(each.startswith("c is better than a by 0.6734 points [") for each in told)


def test_equal_values_are_told_from_a_difference_that_is_not_seen(tmp_path: Path) -> None:
    results = empty(tmp_path, variants=named("a", "b", "c"), seeds=[1, 2])
    for row, values in {"a": (0.5, 0.6), "b": (0.5, 0.6), "c": (0.6, 0.5)}.items():
        results.members[row] += [replace(ended(value, 100), seed=seed) for seed, value in enumerate(values, 1)]
    assert sentences(results)[1:3] == [
        "the same values at 2 seeds: a and b",
        "not settled at 2 seeds: a − c = 0 [-1.271, 1.271]; b − c = 0 [-1.271, 1.271]",
    ]


def test_one_seed_cannot_tell_and_that_is_said_with_the_difference_wherever_it_stands(tmp_path: Path) -> None:
    claim = {"claim": "more", "expect": [{"row": "a", "minus": "b", "at_least": 0}]}
    results = empty(tmp_path / "odd", "accuracy", variants=named("a", "b", "c"), **claim)
    for row, final in {"a": 0.95, "b": 0.73, "c": 0.73}.items():
        results.members[row].append(ended(final, 100, last=final))
    said = [
        "Differences in accuracy (average at the end), of one seed, so without intervals:",
        "one seed cannot tell a difference from chance: a − b = 22 points; a − c = 22 points",
        "the same values at 1 seed: b and c",
    ]
    assert sentences(results)[1] == "a − b: at least 0; found 0.22 at one seed, which cannot tell: not settled"
    assert sentences(results)[3:6] == said
    write_report(results)
    for name in ("report.html", "table.md"):
        text = (results.folder / name).read_text()
        assert all(each in text for each in said) and "95% interval" not in text, name
    assert r"Figures: one seed, so without a deviation and an interval" in (results.folder / "table.tex").read_text()
    frame = pd.read_csv(results.folder / "differences.csv")
    assert list(frame["verdict"]) == ["one seed cannot tell", "one seed cannot tell", "the same values"]
    assert list(frame["mean"]) == pytest.approx([0.22, 0.22, 0]) and frame[["low", "high", "better"]].isna().all(
        axis=None
    )


@pytest.mark.parametrize(
    ("metric", "cell", "told", "claimed"),
    [
        (
            "accuracy",
            "89.00 ± 14.14%\n[0.00, 100.00]",
            "not settled at 2 seeds: a − b = 18.5 points [-100, 100]",
            "a: at most 1; found 0.89 [0, 1]: holds",
        ),
        (
            "loss",
            "0.8900 ± 0.1414\n[-0.3806, 2.1606]",
            "not settled at 2 seeds: a − b = 0.185 [-1.149, 1.519]",
            "a: at most 1; found 0.89 [-0.3806, 2.161]: not settled",
        ),
    ],
)
def test_an_interval_ends_where_its_metric_does(
    tmp_path: Path, metric: str, cell: str, told: str, claimed: str
) -> None:
    claim = {"claim": "less", "expect": [{"row": "a", "at_most": 1}]}
    results = empty(tmp_path, metric, variants=named("a", "b"), seeds=[1, 2], ask={"metric": "loss"}, **claim)
    for row, values in {"a": (0.99, 0.79), "b": (0.70, 0.71)}.items():
        results.members[row] += [replace(ended(value, 100), seed=seed) for seed, value in enumerate(values, 1)]
    assert cells(results)[1][0][2] == cell
    assert told in sentences(results) and claimed in sentences(results)


def test_a_gap_and_a_group_of_few_samples_deviate_at_least_as_these_make_them(tmp_path: Path) -> None:
    """One of eight samples, with each of 3 seeds, settles nothing; the same of 8,000 does."""
    gap, group = "test_gap:slow", "test_group:slow"
    expect = [
        {"row": "a", "figure": gap, "at_least": 0.1},
        {"row": "b", "figure": gap, "at_most": 0.01},
        {"row": "a", "minus": "b", "figure": group, "at_least": 0.1},
    ]
    digits = {"task": {"name": "digits", "model": "softmax"}, "client_groups": {"slow": [0]}}
    asked = {"base": TINY | digits, "ask": {"analysis": [gap, group]}}
    found = {}
    for samples in (8, 8000, None):
        results = empty(
            tmp_path, "accuracy", variants=named("a", "b"), seeds=[1, 2, 3], claim="c", expect=expect, **asked
        )
        for row, more in {"a": 0.125, "b": 0.0}.items():
            for seed in (1, 2, 3):
                made = ended(0.5, 100, **{gap: more, group: 0.5 + more})
                results.members[row].append(replace(made, seed=seed, samples={gap: samples, group: samples}))
        ((_, _, compared),) = results.compared_by[group]
        found[samples] = [*(each.verdict for each in results.judged), compared.verdict]
    known = ["holds"] * 3 + ["a difference"]
    assert found == {8: ["not settled"] * 4, 8000: known, None: known}


def test_the_front_is_drawn_in_steps_for_nothing_between_two_of_its_rows_was_measured(tmp_path: Path) -> None:
    results = empty(tmp_path, "accuracy", variants=named("few", "more", "most"))
    for row, (final, sent) in {"few": (0.5, 100), "more": (0.7, 300), "most": (0.9, 400)}.items():
        results.members[row].append(ended(final, sent))
    (plot,) = plots(results)
    front = plot.drawn[-1]
    steps = list(zip(np.asarray(front.x).tolist(), np.asarray(front.y).tolist(), strict=True))
    assert front.name == "Pareto front" and steps == [(100, 50), (300, 50), (300, 70), (400, 70), (400, 90)]


def test_beside_the_front_are_rows_that_no_row_of_as_few_bytes_is_seen_to_beat(tmp_path: Path) -> None:
    figures = {
        "cheap": (100, (0.80, 0.81, 0.82)),
        "noisy": (300, (0.70, 0.99, 0.95)),
        "equal": (100, (0.79, 0.81, 0.81)),
        "worse": (200, (0.70, 0.71, 0.72)),  # no difference from noisy is seen, but cheap is better
        "dear": (400, (0.79, 0.81, 0.81)),
    }
    results = empty(tmp_path, "accuracy", variants=named(*figures), seeds=[1, 2, 3])
    for row, (sent, finals) in figures.items():
        results.members[row] += [replace(ended(final, sent), seed=seed) for seed, final in enumerate(finals, 1)]
    assert (results.front, results.beside_front) == (["cheap", "noisy"], ["equal"])
    alone = empty(tmp_path, "accuracy", variants=named(*figures), seeds=[1])
    for row in figures:
        alone.members[row] += results.members[row][:1]
    assert (alone.front, alone.beside_front) == (["cheap"], []), "one seed shows no difference of any row"


def test_the_mean_of_only_some_of_a_rows_runs_is_not_drawn(tmp_path: Path) -> None:
    results = empty(tmp_path, variants=named("whole", "part"))
    results.members["whole"].append(ended(0.5, 100))
    results.members["part"] += [ended(0.1, 50), ended(None, 50)]
    (plot,) = plots(results)
    assert [line.name for line in plot.drawn] == ["whole", "Pareto front"]


def test_a_row_has_one_colour_in_all_plots_of_a_study(tmp_path: Path) -> None:
    results = empty(tmp_path, variants=named("part", "whole"), tune={"algorithm.momentum": [0.1, 0.5]})
    results.members["part"] += [ended(0.1, 50), ended(None, 50)]
    results.members["whole"].append(ended(0.5, 100))
    for row in results.members:
        results.tuned[row] = Tuned([Trial({"algorithm.momentum": 0.1}, 1.0)], {"algorithm.momentum": 0.1}, [])
    pareto, tuning = (
        dict(zip((each.name for each in plot.drawn), looks(plot.drawn), strict=True)) for plot in plots(results)
    )
    assert "part" not in pareto and pareto["whole"] == tuning["whole"] != tuning["part"]
    assert len({*pareto.values(), *tuning.values()}) == 3, "the front has a colour of its own"
