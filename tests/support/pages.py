"""The parts of a page with plots: what is the project's own, its programs, and the plots' data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seedbus.scenarios.reporting.results import Results

SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
FIGURE = re.compile(r"<figure[^>]*><figcaption>(.*?)</figcaption>.*?json\">(.*?)</script></figure>", re.DOTALL)


def library() -> str:
    """Return plotly.js as it is installed."""
    found = find_spec("plotly")
    assert found is not None and found.origin is not None
    return (Path(found.origin).parent / "package_data/plotly.min.js").read_text(encoding="utf-8")


def text_of(results: Results) -> str:
    """Return the page of a run."""
    return (results.folder / "report.html").read_text(encoding="utf-8")


def own(html: str) -> str:
    """Return a page without plotly.js, which it has once at most."""
    whole = f"<script>{library()}</script>"
    assert html.count(whole) <= 1
    return html.replace(whole, "")


def allowed(html: str) -> str:
    """Return what a page's policy says of scripts if it has exactly these."""
    digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in SCRIPT.findall(html)]
    return "script-src " + (" ".join(f"'sha256-{each}'" for each in digests) or "'none'") + ";"


def plots(html: str) -> dict[str, dict[str, Any]]:
    """Return the data of a page's plots, by title."""
    return {title: json.loads(text) for title, text in FIGURE.findall(own(html))}


def traces(plot: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what a plot draws, by name; of a line with a band, the line."""
    return {each.get("name", ""): each for each in plot["data"] if each.get("showlegend", True)}


def axes(plot: dict[str, Any]) -> tuple[str, str]:
    """Return the names of a plot's axes."""
    x, y = (plot["layout"][name]["title"]["text"] for name in ("xaxis", "yaxis"))
    return str(x), str(y)
