"""`report.html`: one self-contained page with all figures."""

from __future__ import annotations

import builtins
import json
import platform
import re
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import allowed, axes, own, plots, text_of, traces
from worlds import HISO, go, lossy, scenario

from seedbus.scenarios.reporting import closing_table
from seedbus.scenarios.reporting.document import document
from seedbus.scenarios.reporting.fault_effects import effects
from seedbus.scenarios.reporting.figures import bars, data, lines
from seedbus.scenarios.reporting.looks import Line, Marks
from seedbus.scenarios.reporting.page import metric_plots, write_page
from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.reporting.run_facts import rows
from seedbus.scenarios.running.run import run

AXES = {
    "Loss over rounds": ("rounds", "loss"),
    "Loss over bytes": ("plans and reports sent, all clients (kB)", "loss"),
    "Gap over rounds": ("rounds", "gap"),
    "Gap over bytes": ("plans and reports sent, all clients (kB)", "gap"),
    "Which clients took part": ("round", "client"),
    "How long rounds took": ("round", "seconds (simulated)"),
    "Where the time went": ("round", "seconds"),
    "Participation per client": ("clients, each line with its most active first", "rounds"),
    "Lag per client": ("clients, each line with its most lagging first", "commits"),
    "Lag": ("commits that a client had missed when it was asked", "times"),
    "Catch-up per client": (
        "clients, each line with its most expensive first",
        "bytes that arrived and brought commits (kB)",
    ),
    "Bytes by kind of message": ("kind of message", "headers and payloads (kB)"),
}
EVIL = "</script><script>alert(1)</script><!--<b>&amp;"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return go(tmp_path_factory.mktemp("page") / "run", lossy(stop={"rounds": 30}, expect={"gap": {"at_least": 1e9}}))


def test_every_figure_has_its_axes_with_units(results: Results) -> None:
    found = plots(text_of(results))
    assert {title: axes(plot) for title, plot in found.items()} == AXES
    assert all(plot["data"] for plot in found.values())


def test_no_line_of_the_closing_table_ends_in_spaces(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    closing_table.show(results.summary, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == closing_table.title(results.summary) and all(line == line.rstrip() for line in lines)


def test_the_page_is_well_formed_loads_nothing_and_holds_the_closing_table(results: Results) -> None:
    html, open_tags = own(text_of(results)), []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: Any) -> None:
            assert not {"src", "href"} & dict(attributes).keys() and tag not in ("link", "img", "iframe")
            assert not any(name.startswith("on") for name, _ in attributes)
            if tag != "meta":
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Reader().feed(html)
    assert not open_tags and "http:" not in html and "https:" not in html and "url(" not in html
    assert results.digest in html and "✗ gap" in html and "lost to stragglers" in html
    whole = text_of(results)
    assert allowed(whole) in whole and "default-src 'none'" in whole and "unsafe-eval" not in own(whole)
    assert len(re.findall("<script>", own(whole))) == 1 and len(whole) < 6_000_000


def test_a_page_begins_with_what_was_reached_and_sent_lag_and_what_faults_cost(results: Results) -> None:
    html, summary = own(text_of(results)), results.summary
    names = re.findall('<dt>(.*?)</dt><dd>(.*?)</dd><dd class="note">(.*?)</dd>', html)
    reached, sent, lag, cost = names
    assert reached[:2] == ("loss", f"{results.metrics['loss'].iloc[-1]:.4g}")
    whole = (results.metrics[["bytes_up", "bytes_down"]].iloc[-1]).sum()
    assert sent[:2] == ("bytes per client", readable(whole / summary["participation"]["clients"]))
    assert lag[1] == f"{np.median(results.history.lags):g} commits"
    rounds, asked, counted = results.rounds, results.clients["asked"].sum(), results.clients["counted"].sum()
    assert cost[1] == f"{(~rounds['has_commit']).sum()} of 30 rounds" and asked > counted
    assert f"{asked - counted} of {asked} reports do not count" in cost[2]
    order = [html.index(each) for each in ("<dl", "✗ gap", "<figure", "final digest", "Faults and their effect")]
    assert order == sorted(order)


def test_the_figures_hold_the_runs_numbers(results: Results) -> None:
    found = plots(text_of(results))
    (lag,) = found["Lag"]["data"]
    assert dict(zip(lag["x"], lag["y"], strict=True)) == results.summary["lag"]["histogram"]
    line = traces(found["Gap over rounds"])["gap"]
    assert np.allclose(line["y"], results.metrics["gap"]) and line["x"] == [*range(0, 31, 5)]
    over_bytes, metrics = traces(found["Gap over bytes"])["gap"], results.metrics
    assert np.allclose(over_bytes["x"], (metrics["bytes_up"] + metrics["bytes_down"]) / 1000)
    assert over_bytes["y"] == line["y"]
    took = traces(found["How long rounds took"])["each round"]
    assert took["x"] == [*range(30)] and np.allclose(took["y"], results.rounds["took_s"])
    parts = [each for each in found["Where the time went"]["data"] if each["type"] == "bar"]
    assert np.allclose(sum(np.array(each["y"]) for each in parts), results.rounds["took_s"])
    assert len(parts) > 2 and all(f", {sum(each['y']):,.3g} s" in each["name"] for each in parts)
    for title, names in (("Participation", ["asked", "answered", "counted"]), ("Lag", ["lag_max", "lag_mean"])):
        drawn = [each["y"] for each in traces(found[f"{title} per client"]).values()]
        assert np.allclose(drawn, [sorted(results.clients[name], reverse=True) for name in names])
    (sent,), of_kinds = found["Bytes by kind of message"]["data"], results.summary["traffic"]["by_kind"]
    sizes = {kind: (each["bytes"] - each["catchup_bytes"]) / 1000 for kind, each in of_kinds.items()}
    sizes["catch-up"] = results.summary["traffic"]["catchup_bytes"] / 1000
    assert dict(zip(sent["x"], sent["y"], strict=True)) == pytest.approx(sizes)


def test_what_caught_clients_up_is_taken_from_the_messages_that_brought_it(tmp_path: Path) -> None:
    results = go(tmp_path / "run", scenario(lag={"snapshot_after_commits": 2}))
    (drawn,) = plots(text_of(results))["Bytes by kind of message"]["data"]
    traffic, kilobytes = results.summary["traffic"], dict(zip(drawn["x"], drawn["y"], strict=True))
    assert traffic["by_kind"]["snapshot"]["catchup_bytes"] > traffic["by_kind"]["plan"]["bytes"], "more than all plans"
    assert min(kilobytes.values()) > 0 and kilobytes["catch-up"] == traffic["catchup_bytes"] / 1000
    assert sum(kilobytes.values()) == pytest.approx(sum(each["bytes"] for each in traffic["by_kind"].values()) / 1000)


def test_a_hiso_run_shows_its_h_over_rounds(tmp_path: Path) -> None:
    results = go(tmp_path / "run", scenario(algorithm=HISO))
    found = plots(text_of(results))
    assert np.allclose(found["H over rounds"]["data"][0]["y"], results.metrics["hessian_mean"])
    spread = traces(found["Spread of H over rounds"])
    assert np.allclose(spread["H"]["y"], results.metrics["hessian_cv"])
    assert np.allclose(spread["an H that has learned nothing"]["y"], results.metrics["hessian_cv_null"])


def test_the_page_says_with_what_the_run_was_made(results: Results) -> None:
    html = own(text_of(results))
    assert f"Python {platform.python_version()}, torch {version('torch')}, numpy {np.__version__}" in html
    details = html[html.index("<details>") : html.index("</details>")]
    assert "deadline_s: 0.5" in details and "dampening: false" in details and "momentum: 0.5" in details


def test_a_schedule_is_told_in_words() -> None:
    rates = {0: 0.01, 500: 0.005}
    named = dict(rows(scenario(algorithm={"name": "decomfl", "perturbations": 3, "learning_rate": rates}), {}))
    assert ", P = 3, K = 1, learning rate = 0.01 from round 0 and 0.005 from round 500" in named["algorithm"]


def test_what_was_named_oddly_is_escaped(tmp_path: Path) -> None:
    results = go(tmp_path / "run", scenario(stop={"rounds": 2}))
    kinds = results.summary["traffic"]["by_kind"] | {EVIL: {"bytes": 5, "catchup_bytes": 0}}
    odd = results.summary | {"reason": EVIL, "traffic": results.summary["traffic"] | {"by_kind": kinds}}
    write_page(Results(results.folder, json.loads(json.dumps(odd))))
    html = text_of(results)
    assert "alert(1)</script" not in html and "&lt;/script&gt;&lt;script&gt;alert" in html and allowed(html) in html
    assert (
        "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;!--&lt;b&gt;&amp;amp;"
        in (plots(html)["Bytes by kind of message"]["data"][0]["x"])
    ), "plotly.js has tags, too"


@given(st.text())
def test_data_of_a_page_come_back_as_they_were_and_hold_no_markup(text: str) -> None:
    element = data({"name": text + EVIL})
    inner = element.removeprefix('<script type="application/json">').removesuffix("</script>")
    assert json.loads(inner) == {"name": text + EVIL} and not re.search("[<>&]", inner)


def test_a_page_without_plots_runs_no_script() -> None:
    html = document("title", "<p>nothing</p>").decode()
    assert "<script" not in html and "script-src 'none';" in html and len(html) < 10_000


def test_what_is_not_finite_leaves_a_gap() -> None:
    y = [1.0, 2.0, float("nan"), 3.0, float("inf"), 4.0, 5.0]
    (line,) = plots(lines("t", "x", "y", [Line("a", range(7), y)]))["t"]["data"]
    assert line["y"] == [1, 2, None, 3, None, 4, 5]
    assert line["marker"]["size"] == [0, 0, 0, 8, 0, 0, 0], "an isolated point, which a line would not show"


def test_a_band_has_its_lines_colour_and_goes_with_it() -> None:
    y = np.array([1.0, 2.0, np.nan, 4.0])
    band, line = plots(lines("t", "x", "y", [Line("a", range(4), y, low=y - 1, high=y + 1)]))["t"]["data"]
    assert band["name"] == line["name"] and band["fillcolor"] == line["line"]["color"]
    assert band["y"] == [0, 1, 3, 2, None, 3, 5, None] and band["x"] == [0, 1, 1, 0, None, 3, 3, None]


def test_marks_lie_where_they_belong_and_are_few_however_many_there_are() -> None:
    line = Line("a", [0, 100], [1, 2])
    marked = Marks([20.5], [(10, 15, "partition"), (30, 35, "partition"), (40, 60, "drop")])
    found = traces(plots(lines("t", "x", "y", [line], marks=marked))["t"])
    assert found["in force: partition"]["x"] == [10, 10, 15, 15, None, 30, 30, 35, 35, None]
    assert found["in force: drop"]["x"][:4] == [40, 40, 60, 60]
    assert found["round without a commit"]["x"] == [20.5]
    many = Marks(np.arange(10**5) + 0.5, [(2 * each, 2 * each + 1, "drop") for each in range(50_000)])
    assert len(lines("t", "x", "y", [Line("a", [0, 10**5], [1, 2])], marks=many)) < 60_000


def test_every_metric_is_drawn_those_of_a_task_of_ones_own_too() -> None:
    when = {"round": 0, "version": 0, "time_s": 0.0, "bytes_up": 0, "bytes_down": 0}
    own_names = {"success": 0.5, "consensus_distance": 2.0, "<b>\x1b": 1.0, "hessian_mean": 3.0}
    line = {**when, "loss": 1.0, "accuracy": 0.1, "accuracy_ema": 0.1, **own_names}
    drawn = plots("".join(metric_plots([line, line | {"round": 9, "version": 10}])))
    names = [title.removesuffix(" over rounds") for title in drawn if title.endswith(" over rounds")]
    assert names[:4] == ["Accuracy", "Loss", "Success", "Consensus distance"] and names[-1] == "H"
    assert len(names) == 6 and len(drawn) == 11, "those of H are drawn over rounds alone"
    assert axes(drawn["Success over bytes"])[1] == "success" and "\x1b" not in str(drawn)
    assert list(traces(drawn["Accuracy over rounds"])) == ["accuracy", "moving average"]


@pytest.mark.parametrize("values", [[], [float("nan")], [0.0], [7.0, 7.0], [-3.0, -3.0], [1e-9, 2e-9], [1e300, -1e300]])
def test_there_is_a_plot_of_whatever_there_is(values: list[float]) -> None:
    for is_log in (False, True):
        html = lines("t", "x", "y", [Line("a", values, values)], is_log=is_log)
        assert axes(plots(html)["t"]) == ("x", "y")
    bars("t", "x", "y", {str(number): abs(value) for number, value in enumerate(values) if np.isfinite(value)})


def test_the_clients_that_rounds_waited_for_are_listed_with_how_often_and_how_long(tmp_path: Path) -> None:
    slow = {"fault": "straggler", "clients": [5], "factor": 10, "for_rounds": 4}
    gone = {"fault": "dropout", "clients": [2], "at_round": 10}
    everyone = {"clients": 8, "cohort": 8, "deadline_s": 2.0}
    timed = {"network": {"latency": 0.1}, "compute": {"evaluation": 0.01}}
    results = go(tmp_path / "run", scenario(participation=everyone, faults=[slow, gone], **timed))
    html = own(text_of(results))
    table = html[html.index("The clients that rounds waited for longest") :].partition("</table>")[0]
    rows = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr><td>.*?</tr>", table)]
    assert rows[:2] == [["2", "0", "0 s", "10", "17.6 s"], ["5", "4", "1.44 s", "0", "0 s"]]


def test_faults_are_told_with_what_they_did_and_how_rounds_went_without_them(tmp_path: Path) -> None:
    gone = {"fault": "dropout", "clients": [0, 1, 2, 3], "at_round": 10, "for_rounds": 5}
    never = {"fault": "drop", "at_round": 1000}
    always = {"fault": "straggler", "factor": 1}
    what = scenario(
        faults=[gone, never, always],
        participation={"clients": 8, "cohort": 8, "deadline_s": 2.0},
        network={"latency": 0.1},
    )
    results = go(tmp_path / "run", what)
    struck, missing, steady = effects(what, results.summary, results.history)
    assert struck[0] == "dropout" and struck[1].startswith("20 ")
    assert struck[2:] == ["5 of 20", "50%\n100%", "2 s\n0.2 s", "0\n0"]
    assert missing[2:] == ["0 of 20", "–\n88%", "–\n0.2 s", "–\n0"]
    assert steady[2:] == ["20 of 20", "88%", "0.2 s", "0"]
    html = own(text_of(results))
    assert "<td>50%<br>100%</td>" in html and "Faults and their effect" in html
    assert traces(plots(html)["Loss over rounds"])["in force: dropout"]["x"] == [10, 10, 15, 15, None]


def test_a_run_without_a_server_has_no_share_of_reports_and_no_answers(tmp_path: Path) -> None:
    whole = {"name": "decomfl", "arithmetic": "integer", "perturbations": 2}
    nodes: dict[str, Any] = {"topology": {"kind": "gossip", "graph": "ring"}, "participation": {"clients": 8}}
    what = lossy(algorithm=whole, stop={"rounds": 4}, **nodes)
    results = go(tmp_path / "run", what)
    ((_, did, in_force, share, *_),) = effects(what, results.summary, results.history)
    assert did != "never struck" and (in_force, share) == ("4 of 4", "–")
    html = own(text_of(results))
    found = plots(html)
    assert list(traces(found["Participation per client"])) == ["asked", "counted"]
    assert axes(found["Lag"])[0] == "commits that a node lacked when the round closed"
    assert "asked each round" not in html and "last heard" not in html and "rounds waited for" not in html


def test_a_slow_node_that_commits_its_step_in_a_later_round_has_not_dropped_it(tmp_path: Path) -> None:
    whole = {"name": "decomfl", "arithmetic": "integer", "perturbations": 2}
    slow = {"fault": "straggler", "clients": [3], "factor": 15}  # 0.3 s of work become 4.5
    nodes: dict[str, Any] = {"topology": {"kind": "gossip", "graph": "ring"}, "participation": {"clients": 4}}
    what = scenario(algorithm=whole, faults=[slow], compute={"evaluation": 0.1}, stop={"rounds": 10}, **nodes)
    results = go(tmp_path / "run", what)
    assert list(traces(plots(text_of(results))["Which clients took part"])) == ["took part 30", "late or refused 2"]


def test_an_asynchronous_round_has_clients_at_work_and_does_not_ask_a_cohort(tmp_path: Path) -> None:
    buffered = {"clients": 8, "cohort": 4, "buffer": 1, "late": {}}
    html = own(text_of(go(tmp_path / "run", scenario(participation=buffered, stop={"rounds": 3}))))
    assert "<td>8, 4 at work at a time, a commit needs 1 report</td>" in html


def test_the_clients_that_lagged_most_are_listed_with_what_it_cost(results: Results) -> None:
    html = own(text_of(results))
    table = html[html.index("The clients that lagged most") :]
    whole = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr><td>.*?</tr>", table)]
    rows, clients = [row[:2] for row in whole], results.clients
    for client, _, *others in whole:
        of: Any = clients.loc[int(client)]
        sizes = [readable(int(of["catchup_bytes"])), f"{of['replayed']:,.0f}", f"{of['last_heard_s']:,.1f} s"]
        assert others == [f"{of['lag_mean']:.3g}", f"{of['asked']:,.0f}", *sizes]
    assert [int(lag) for _, lag in rows] == sorted(clients["lag_max"], reverse=True)
    assert all(clients["lag_max"][int(client)] == int(lag) for client, lag in rows)
    found = plots(text_of(results))
    assert traces(found["Lag per client"])["at most"]["y"] == sorted(clients["lag_max"], reverse=True)
    kilobytes = sorted(clients["catchup_bytes"] / 1000, reverse=True)
    assert np.allclose(traces(found["Catch-up per client"])["catch-up"]["y"], kilobytes)


def test_a_run_imports_nothing_of_plotly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refusing(name: str, *rest: Any, **more: Any) -> Any:
        assert name.partition(".")[0] != "plotly"
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refusing)
    assert plots(text_of(go(tmp_path / "run", scenario(stop={"rounds": 2}))))


def test_a_run_may_have_no_page_until_it_is_asked_for(tmp_path: Path) -> None:
    results = run(scenario(stop={"rounds": 2}), tmp_path / "run", page=False)
    assert not (results.folder / "report.html").exists()
    write_page(results)
    assert "How long rounds took" in text_of(results)
