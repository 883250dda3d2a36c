"""`seedbus compare`: its figures agree with the runs' folders, and every mistake gives one sentence."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import Command
from own_task import own as own_task
from pages import allowed, own, plots
from worlds import HISO, go, scenario

import seedbus
from seedbus.agents.server.stopping import averages
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.figures import lines
from seedbus.scenarios.reporting.looks import COLOURS, Line
from seedbus.scenarios.reporting.paper import lines_figure
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import RESULTS
from seedbus.studies.study.cells import is_rising
from seedbus.studies.study.compare import compare
from seedbus.studies.study.comparison import Comparison, Spread
from seedbus.studies.study.runs import Run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    """Run two seeds of one scenario, a scenario evaluated at other rounds, and one with another kind of task."""
    folder = tmp_path_factory.mktemp("runs")
    hiso = scenario(name="hiso", algorithm=HISO, evaluation={"every": 4}, stop={"rounds": 8})
    softmax = scenario(name="digits", task={"name": "digits", "model": "softmax"}, stop={"rounds": 5})
    worlds = {"one": scenario(), "two": scenario(seed=2), "hiso": hiso, "digits": softmax}
    return {name: go(folder / name, what) for name, what in worlds.items()}


def of(runs: dict[str, Results], *names: str, **options: Any) -> Comparison:
    return compare([runs[name].folder for name in names], **options)


def unfinished(values: list[float | None], name: str = "accuracy") -> Run:
    """Return an unfinished run, evaluated at x₀ and every ten rounds; each round sends 1 byte up and 2 bytes down."""
    lines = [
        {"round": 10 * n - 1 if n else 0, "version": 10 * n, "time_s": float(n), name: value}
        | {"bytes_up": 10 * n, "bytes_down": 20 * n}
        for n, value in enumerate(values)
    ]
    return Run(Path("made"), scenario(), lines, None)


def test_of_a_metric_of_ones_own_larger_values_are_better_if_its_task_says_so() -> None:
    for larger, best, met in (([], 0.1, 0), (["found"], 0.3, 1)):
        task = own_task(metrics={"found": lambda outputs, targets: outputs.mean()}, larger_is_better=larger)
        measured = unfinished([0.1, 0.2, 0.3], "found")
        run = Run(measured.folder, measured.scenario.model_copy(update={"task": task}), measured.lines, None)
        assert run.figures("found", {}, [])["best"] == best and run.first_met("found", 0.15) == met
        assert bool(run.shortcomings("found")) == (not larger)
        plan: Any = SimpleNamespace(cells=[run])
        assert is_rising(plan, "found") == bool(larger) and is_rising(plan, "accuracy") and not is_rising(plan, "loss")


def test_runs_whose_tasks_disagree_about_what_is_better_are_compared_with_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: dict[str, Run] = {}
    for name, larger in (("up", ["found"]), ("down", []), ("again", ["found"])):
        task = own_task(metrics={"found": lambda outputs, targets: outputs.mean()}, larger_is_better=larger)
        what = scenario(seed=len(made)).model_copy(update={"task": task})
        made[name] = Run(Path(name), what, unfinished([0.1, 0.2], "found").lines, None)
    monkeypatch.setattr(Run, "read", lambda folder: made[folder.name])
    said = "larger values of found are better in up and smaller ones in down, as their tasks say: what is best, the "
    assert [note.startswith(said) for note in compare(["up", "down", "again"], "found").notes].count(True) == 1
    assert not any("larger values" in note for note in compare(["up", "again"], "found").notes)


def test_a_run_whose_first_measurements_were_refused_has_no_value_of_those_rounds() -> None:
    measured = unfinished([0.1, 0.2, 0.3])
    run = Run(measured.folder, measured.scenario, measured.lines[1:], None)
    assert run.rounds == [10, 20]
    figures = run.figures("accuracy", {}, [0, 9, 10])
    assert [figures[f"at_{round}"] for round in (0, 9, 10)] == [None, None, 0.2] and figures["at_9_ema"] is None


def test_a_target_is_met_by_the_first_value_and_smoothed_by_the_moving_average() -> None:
    run = unfinished([0.0, 1.0, 1.0, 1.0, 1.0])
    assert run.rounds == [0, 10, 20, 30, 40]
    at = ("rounds_to_target", "bytes_to_target", "simulated_s_to_target")
    assert [run.figures("accuracy", {"target": 0.88}, [])[name] for name in at] == [10, 30, 1.0]
    targets = {"target": 0.88, "0.6": 0.6, "0.99": 0.99}
    figures = run.figures("accuracy", targets, [], smoothed=True)  # 1 − 0.9^n at n = 0, 10, …: 0, 0.651, 0.878, 0.958
    assert [figures[name] for name in at] == [30, 90, 3.0]
    assert [figures[f"rounds_to_{target}"] for target in ("0.6", "0.99")] == [10, None]
    falling = unfinished([1.0, 0.5, 0.0], "loss")
    assert [falling.first_met("loss", 0.5, smoothed=smoothed) for smoothed in (False, True)] == [1, 2]


def test_a_value_at_a_round_stands_beside_its_moving_average() -> None:
    figures = unfinished([0.0, 1.0, 0.5]).figures("accuracy", {}, [20, 40])
    assert figures["at_20"] == 0.5
    assert figures["at_20_ema"] == pytest.approx((1 - 0.9**10) * 0.9**10 + 0.5 * (1 - 0.9**10))
    assert (figures["at_40"], figures["at_40_ema"]) == (None, None), "nothing was evaluated then"


def test_a_value_at_an_amount_of_bytes_is_the_newest_that_was_measured_by_then_and_not_that_of_x0() -> None:
    run = unfinished([0.0, 1.0, 0.5])  # after 0, 30 and 60 bytes
    figures = run.figures("accuracy", {}, ["29B", "30B", "59B", "60B", "61B"])
    assert [figures[f"at_{size}B"] for size in (29, 30, 59, 60, 61)] == [None, 1.0, 1.0, 0.5, None]
    assert [figures[f"at_{size}B_bytes"] for size in (29, 30, 59, 60, 61)] == [None, 30, 30, 60, None]
    assert figures["at_60B_ema"] == figures["ema"]


def test_a_value_at_a_simulated_time_is_the_newest_that_was_measured_by_then_and_not_that_of_x0() -> None:
    run = unfinished([0.0, 1.0, 0.5])  # after 0, 1 and 2 seconds
    times = ["0.9s", "1s", "1.9s", "2s", "1min"]
    figures = run.figures("accuracy", {}, times)
    assert [figures[f"at_{time}"] for time in times] == [None, 1.0, 1.0, 0.5, None]
    assert [figures[f"at_{time}_simulated_s"] for time in times] == [None, 1.0, 1.0, 2.0, None]
    assert figures["at_2s_ema"] == figures["ema"]


def test_a_comparison_as_text_is_safe_to_print(runs: dict[str, Results], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs["one"].folder, tmp_path / "a\x1b]0;title\x07"))
    text = str(compare([runs["one"].folder, folder]))
    assert "only that is counted" in text and text.replace("\n", "").isprintable()


def test_the_average_forgets_with_rounds_and_not_with_evaluations() -> None:
    """Constant values give the same average whether they are measured every round or every fifth round."""

    def lines(every: int) -> list[dict[str, Any]]:
        return [{"round": max(n - 1, 0), "version": n, "accuracy": 0.8 if n else 0.0} for n in range(0, 21, every)]

    often, seldom = averages(lines(1), "accuracy"), averages(lines(5), "accuracy")
    assert often[::5] == pytest.approx(seldom, rel=1e-12)
    assert often[:3] == pytest.approx([0, 0.08, 0.152])  # 0.9 · old average + 0.1 · new value
    assert averages([*lines(5), *lines(10)], "accuracy")[-1] == seldom[-1]  # values older than the newest are ignored


def test_what_is_not_finite_meets_no_target_and_is_not_the_best() -> None:
    figures = unfinished([0.5, None, 0.9], "accuracy").figures("accuracy", {"target": 0.1}, [10, 20])
    assert (figures["rounds_to_target"], figures["best"], figures["at_10"], figures["at_20"]) == (0, 0.9, None, 0.9)
    assert unfinished([0.0, None, 0.9]).first_met("accuracy", 0.01) == 2
    assert unfinished([0.0, None, 0.9]).first_met("accuracy", 0.01, smoothed=True) is None


def test_where_a_run_ended_is_the_mean_of_its_last_evaluations_if_all_are_finite() -> None:
    assert unfinished([0.0, *[1.0] * 5, *[0.5] * 5]).figures("accuracy", {}, [])["end"] == pytest.approx(0.75)
    assert unfinished([None, *[1.0] * 5, *[0.5] * 5]).figures("accuracy", {}, [])["end"] == pytest.approx(0.75)
    assert unfinished([0.4, None, 0.8]).figures("accuracy", {}, [])["end"] is None, "not a mean of values before it"
    assert unfinished([None]).figures("accuracy", {}, [])["end"] is None


def test_runs_that_are_evaluated_at_other_rounds_are_compared_with_a_note(runs: dict[str, Results]) -> None:
    assert of(runs, "one", "two").notes == []
    (note,) = of(runs, "one", "hiso").notes
    assert note.startswith("the runs are evaluated after every 4 and every 5 rounds: the mean of the last 10 spans ")


def test_at_a_round_it_is_the_newest_value_by_then_and_none_of_a_round_that_was_not_reached() -> None:
    run = unfinished([0.1, 0.2, 0.3])
    assert [run.at("accuracy", round) for round in (0, 9, 10, 19, 20, 21)] == [0.1, 0.1, 0.2, 0.2, 0.3, None]


def test_a_spread_is_the_samples_mean_and_deviation() -> None:
    assert Spread.of([1.0, None, 3.0]) == Spread(2.0, math.sqrt(2), 2)
    assert Spread.of([5.0]) == Spread(5.0, None, 1)
    assert Spread.of([None]) is None


def test_seeds_are_one_row_with_the_figures_of_their_folders(runs: dict[str, Results]) -> None:
    comparison = of(runs, "one", "hiso", "two", at=[10])
    assert comparison.metric == "loss" and len(comparison.notes) == 1, "they are evaluated at other rounds"
    seeds = next(row for row in comparison.rows if row.name == "small")
    assert [run.scenario.seed for run in seeds.runs] == [1, 2] and seeds.algorithm == "decomfl"
    both = [runs["one"], runs["two"]]
    wanted = {
        "last": [each.metrics["loss"].iloc[-1] for each in both],
        "best": [each.metrics["loss"].min() for each in both],
        "at_10": [each.metrics.set_index("round")["loss"][9] for each in both],
        "bytes_up": [each.summary["traffic"]["up"]["bytes"] for each in both],
        "bytes_down_per_client": [each.summary["traffic"]["down"]["bytes"] / 8 for each in both],
        "simulated_s": [each.summary["simulated_s"] for each in both],
        "wall_s": [each.summary["wall_s"] for each in both],
        "rounds": [20, 20],
        "evaluations": [20 * 3 * 4] * 2,  # rounds · cohort · (three perturbations and the unperturbed point)
    }
    for name, values in wanted.items():
        spread = seeds.figures[name]
        assert spread is not None and spread.runs == 2
        assert spread.mean == pytest.approx(np.mean(values))
        assert spread.deviation == pytest.approx(np.std(values, ddof=1))


def test_rows_begin_with_those_that_reach_the_target_first(runs: dict[str, Results]) -> None:
    values = {name: runs[name].metrics["loss"] for name in ("one", "hiso")}
    by_value = sorted(values, key=lambda name: values[name].iloc[-1])
    names = {"one": "small", "hiso": "hiso"}
    assert [row.name for row in of(runs, "one", "hiso").rows] == [names[name] for name in by_value]
    out_of_reach = of(runs, "one", "hiso", metric="loss", target=0.0).rows
    assert [row.name for row in out_of_reach] == [names[name] for name in by_value]
    worst = runs[by_value[1]].metrics["loss"]
    at_once = of(runs, *by_value, metric="loss", target=float(worst.iloc[0]) + 1).rows
    assert all(row.figures["rounds_to_target"] == Spread(0.0, None, 1) for row in at_once)


def test_scenarios_of_one_name_are_told_apart_by_their_settings(runs: dict[str, Results], tmp_path: Path) -> None:
    algorithm = scenario().resolved()["algorithm"] | {"learning_rate": 0.02}
    other = go(tmp_path / "other", scenario(algorithm=algorithm))
    rows = compare([runs["one"].folder, other.folder]).rows
    assert sorted(row.name for row in rows) == ["small, learning_rate 0.01", "small, learning_rate 0.02"]


def test_what_looks_like_markup_is_shown_as_it_is_and_a_long_setting_is_cut(
    seedbus: Command, runs: dict[str, Results], tmp_path: Path
) -> None:
    go(tmp_path / "other", scenario(faults=[{"fault": "straggler", "clients": [0, 1], "pause_s": 1}]))
    go(tmp_path / "weighted", scenario(faults=[{"fault": "straggler", "clients": [*range(8)], "pause_s": 1}]))
    result = seedbus("compare", "other", "weighted", runs["one"].folder, "--format", "markdown").out
    assert "| small, straggler \\[0, 1], " in result, result
    assert "| small, straggler \\[0, 1, 2, 3, 4, 5, 6, 7], " in result and "| small, no faults, " in result


def test_one_run_is_counted_once(runs: dict[str, Results], tmp_path: Path) -> None:
    shutil.copytree(runs["one"].folder, tmp_path / "copy")
    for twice in (tmp_path / "copy", runs["one"].folder):
        comparison = compare([runs["one"].folder, twice])
        assert len(comparison.rows) == 1 and len(comparison.rows[0].runs) == 1
        assert len(comparison.notes) == 1 and "the seed of" in comparison.notes[0]


def test_the_real_time_of_a_resumed_run_is_not_known(runs: dict[str, Results], tmp_path: Path) -> None:
    file = shutil.copytree(runs["one"].folder, tmp_path / "resumed") / RESULTS
    file.write_text(json.dumps(json.loads(file.read_text()) | {"was_resumed": True}))
    (row,) = compare([tmp_path / "resumed"]).rows
    assert row.figures["wall_s"] is None and row.figures["simulated_s"] is not None


def test_a_run_that_is_not_finished_is_shown_as_far_as_it_came(
    seedbus: Command, runs: dict[str, Results], tmp_path: Path
) -> None:
    shutil.copytree(runs["two"].folder, tmp_path / "stopped")
    (tmp_path / "stopped" / RESULTS).unlink()
    result = seedbus("compare", runs["one"].folder, "stopped")
    assert result.code == Exit.OK and "2 seeds, 1 unfinished" in result.out and "1 of 2 runs" in result.out
    assert result.err == "seedbus: note: stopped is not finished; it is counted as it was after 20 rounds\n"


def test_the_table_and_the_page_hold_the_same_and_the_page_has_a_plot_of_each_cost(
    seedbus: Command, runs: dict[str, Results]
) -> None:
    folders = [runs[name].folder for name in ("one", "two", "hiso")]
    result = seedbus(
        "compare",
        *folders,
        "--target",
        "loss_ema=60",
        "--at",
        "4, 1h,1kB,0.5 kB,4,0s",
        "--out",
        "compare.html",
    )
    note = "the runs are evaluated after every 4 and every 5 rounds"
    assert result.code == Exit.OK and result.err.startswith(f"seedbus: note: {note}") and result.err.count("\n") == 1
    html = Path("compare.html").read_text(encoding="utf-8")
    assert f"<p>{note}" in html
    names = ("loss at 4", "loss at 0.5 kB", "loss at 1 kB", "loss at 0 s", "loss at 1 h")
    for text in ("decomfl, 2 seeds", *names, "rounds to 60 on average", " ± ", "forward"):
        assert text in result.out and text in html
    assert "http:" not in own(html) and allowed(html) in html
    found = plots(html)
    assert list(found) == [f"Loss over {cost}" for cost in ("rounds", "bytes", "simulated time", "forward passes")]
    drawn = [[line for line in plot["data"] if line.get("fill") is None] for plot in found.values()]
    points = [[sum(x is not None for x in line["x"]) for line in lines] for lines in drawn]
    measured = sorted(len(runs[name].metrics) for name in ("one", "hiso"))
    assert sorted(points[0]) == measured
    assert sorted(points[1]) == [count - 1 for count in measured], "x₀ has no place among logarithms"


def test_markdown_is_a_table_with_a_line_a_row(seedbus: Command, runs: dict[str, Results]) -> None:
    folders = [runs[name].folder for name in ("one", "two", "hiso")]
    heads, rule, *rows = seedbus("compare", *folders, "--format", "markdown").out.splitlines()
    assert heads.startswith("| run, algorithm | rounds |") and rule == "| --- |" + " ---: |" * (heads.count("|") - 2)
    assert len(rows) == 2 and all(row.count("|") == heads.count("|") for row in rows)
    assert sorted(row.split(" | ")[0] for row in rows) == ["| hiso, hiso", "| small, decomfl, 2 seeds"]


def test_json_is_one_object_and_what_python_gives(seedbus: Command, runs: dict[str, Results]) -> None:
    folders = [runs[name].folder for name in ("one", "hiso")]
    result = seedbus("compare", *folders, "--target", "loss_ema=60", "--at", "8", "--format", "json")
    assert json.loads(result.out) == compare(folders, "loss", 60.0, [8], smoothed=True).json()


def test_runs_of_different_tasks_are_compared_with_a_note(seedbus: Command, runs: dict[str, Results]) -> None:
    result = seedbus("compare", runs["one"].folder, runs["digits"].folder)
    assert result.code == Exit.OK and "the runs are of different tasks (digits softmax, quadratic)" in result.err


def test_a_run_that_was_not_measured_yet_is_one_sentence(seedbus: Command, tmp_path: Path) -> None:
    from seedbus.agents.journal.journal import Journal

    Journal.create(tmp_path / "new", {"scenario": json.dumps(scenario().resolved())}).close()
    result = seedbus("compare", "new")
    assert (result.code, result.err) == (
        Exit.FOLDER,
        "seedbus: new: this run has no evaluations yet, so there is nothing to compare\n",
    )


def test_compare_can_be_called_from_python(runs: dict[str, Results]) -> None:
    comparison = seedbus.compare([runs["one"].folder, runs["one"].folder])
    assert comparison.rows[0].name == "small"
    head, *_, row, note = str(comparison).splitlines()
    assert head.startswith("| run, algorithm |") and row.startswith("| small, decomfl |") and "the seed of" in note


def test_many_lines_have_distinct_styles_and_are_named() -> None:
    many = [Line(f"<{number}>", [1, 10, 100], [number] * 3) for number in range(2 * len(COLOURS))]
    (plot,) = plots(lines("t", "x", "y", many, is_log=True)).values()
    assert len({(line["line"]["color"], line["line"]["dash"]) for line in plot["data"]}) == len(many)
    assert plot["data"][0]["name"] == "&lt;0&gt;" and plot["layout"]["xaxis"]["type"] == "log"
    assert plot["layout"]["xaxis"]["range"] == [0, 2]
    axes = lines_figure("x", "y", many, is_log=True).axes[0]
    looks = {(line.get_color(), str(line._dash_pattern)) for line in axes.lines}  # type: ignore[attr-defined]
    assert len(looks) == len(many) and axes.get_xscale() == "log"
    assert [line.get_label() for line in axes.lines] == [f"<{number}>" for number in range(len(many))]


def test_many_points_have_distinct_shapes_or_colours_which_the_legend_shows() -> None:
    """No dash tells points apart, so those of one colour have other shapes; each is drawn, and is in the legend."""
    many = [Line(f"{number}", [1 + number], [number]) for number in range(5 * len(COLOURS))]
    (plot,) = plots(lines("t", "x", "y", many)).values()
    assert len({(line["marker"]["color"], line["marker"]["symbol"]) for line in plot["data"]}) == len(many)
    assert {line["mode"] for line in plot["data"]} == {"markers"}
    figure = lines_figure("x", "y", many)
    assert {line.get_linestyle() for line in figure.axes[0].lines} == {"None"}
    looks = [(line.get_color(), line.get_marker()) for line in figure.axes[0].lines]
    shown = [(line.get_color(), line.get_marker()) for line in figure.legends[0].get_lines()]
    assert len(set(looks)) == len(many) and shown == looks
