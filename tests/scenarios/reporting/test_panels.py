"""A plot of several panels has one pair of axes and one legend, wherever it is drawn."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as Xml

import pytest

from seedbus.scenarios.reporting.figures import lines
from seedbus.scenarios.reporting.looks import Line, rows_of
from seedbus.scenarios.reporting.paper import can_draw, lines_pdf
from seedbus.scenarios.reporting.svg import lines_file

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = [
    Line(name, [0, 10], [0, high * (1 + number)], place=number, panel=panel)
    for panel, high in (("calm", 20), ("<slow>", 2), ("far", 5), ("near", 1))
    for number, name in enumerate(("a", "b"))
]


def test_panels_stand_in_rows_of_about_equal_length() -> None:
    assert [rows_of(count) for count in (1, 2, 3, 4, 5, 7, 12)] == [
        (1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3), (4, 3),
    ]  # fmt: skip


def test_an_svg_file_has_the_same_ticks_in_each_panel_and_a_legend_of_each_name_once() -> None:
    figure = Xml.fromstring(lines_file("t", "rounds", "loss", DRAWN))
    assert figure.attrib["viewBox"].split()[2] == str(2 * 560), "two by two"
    panels = figure.findall(f"{SVG}g")
    ticks = [[each.text for each in panel.iter(f"{SVG}text") if each.get("class") == "tick"] for panel in panels]
    assert len(panels) == 4 and all(each == ticks[0] for each in ticks) and "40" in ticks[0]
    colours = [[each.get("stroke") for each in panel.iter(f"{SVG}polyline")] for panel in panels]
    assert all(each == colours[0] for each in colours) and len(set(colours[0])) == 2
    texts = [each.text for each in figure.iter(f"{SVG}text")]
    assert [texts.count(name) for name in ("t", "calm", "<slow>", "a", "b")] == [1, 1, 1, 1, 1]


@pytest.mark.slow
def test_a_pdf_file_of_panels_is_as_wide_as_both_columns_and_the_same_bytes_each_time() -> None:
    if not can_draw():
        pytest.skip("the extra plot has matplotlib")
    for count, width_in in ((1, 3.25), (4, 6.75)):
        drawn = DRAWN[: 2 * count]
        content = lines_pdf("rounds", "loss", drawn)
        assert content == lines_pdf("rounds", "loss", drawn)
        assert f"/MediaBox [ 0 0 {72 * width_in:g} ".encode() in content


def test_a_page_gives_each_panel_its_axes_and_all_the_same_range() -> None:
    html = lines("t", "rounds", "loss", DRAWN)
    found = re.search(r"<script[^>]*>(.*)</script>", html)
    assert found is not None and html.startswith('<figure class="wide">')
    spec = json.loads(found[1])
    axes = [(each.get("xaxis"), each.get("yaxis"), each["name"]) for each in spec["data"]]
    assert axes == [(x, y, name) for x, y in ((None, None), ("x3", "y3"), ("x4", "y4"), ("x5", "y5")) for name in "ab"]
    layout = spec["layout"]
    assert layout["panels"] == ["calm", "&lt;slow&gt;", "far", "near"] and layout["xaxis"]["range"] == [0, 10]
    assert layout["yaxis"]["range"][0] == 0 and 40 < layout["yaxis"]["range"][1] < 42
    assert "panels" not in lines("t", "rounds", "loss", [DRAWN[0]._replace(panel="")])
