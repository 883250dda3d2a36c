"""An HTML page that needs nothing else: its style, its plots, and the program that draws them, plotly.js.

The page has a content security policy: the browser runs the scripts with these hashes and no other, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from seedbus.scenarios.reporting.figures import CLASS, data
from seedbus.scenarios.reporting.looks import COLOURS, DARK


def document(title: str, content: str, script: str = "") -> bytes:
    """Return an HTML page in UTF-8. It is bytes, for as text all of plotly.js took two or four bytes a character.

    Args:
        title: plain text.
        content: HTML of what is below the title.
        script: JavaScript that runs once all is there, and may call what `plots.js` defines; "": none.
    """
    has_plots = bool(script) or f'class="{CLASS}"' in content
    head = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(script, has_plots=has_plots)}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>\n{_text('page.css')}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n{content}"
    )
    ends = [b"</body>\n</html>\n"]
    if has_plots:
        palette = data(dict(zip(COLOURS, DARK, strict=True))).replace("<script", '<script id="dark"')
        scripts = [part for each in _programs(script) for part in (b"<script>", each, b"</script>")]
        ends = [f"<noscript><p>The plots need JavaScript.</p></noscript>{palette}".encode(), *scripts, *ends]
    return b"".join([head.encode(), *ends])


def key_row(figures: Sequence[tuple[str, str, str]]) -> str:
    """Return the figures that a page begins with as HTML: of each its name, its value and a note, in plain text."""
    parts = (
        f'<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd class="note">{escape(note)}</dd></div>\n'
        for name, value, note in figures
    )
    return f'<dl class="key">\n{"".join(parts)}</dl>\n'


def with_plots(above: str, plots: Sequence[str]) -> str:
    """Return the content of a page: HTML of what is above its figures, and of each figure."""
    return f"{above}<main>\n{''.join(plots)}</main>\n"


def scrolling(html: str) -> str:
    """Return a table as HTML that scrolls by itself where it is wider than the page, and shows that it does."""
    return f'<div class="table" tabindex="0">{html}</div>\n'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML, of plain text; a text may have several lines. A row of one cell spans all columns."""
    head = "".join(f"<th>{_lines(each)}</th>" for each in heads)
    whole = f'<th colspan="{len(heads)}" scope="rowgroup">'
    body = "".join(
        f"<tr>{whole}{_lines(row[0])}</th></tr>\n"
        if len(row) == 1 < len(heads)
        else f"<tr>{''.join(f'<td>{_lines(each)}</td>' for each in row)}</tr>\n"
        for row in rows
    )
    return scrolling(f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>")


def section(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """Return a table under a heading, with what is said of it; "" where there are no rows. All is plain text."""
    told = f'<p class="note">{escape(note)}</p>\n' if note else ""
    return f"<h2>{escape(title)}</h2>\n{told}{table(heads, rows)}" if rows else ""


def policy(script: str = "", *, has_plots: bool = True) -> str:
    """Return the content security policy of a page: its own scripts run, and nothing is loaded.

    Args:
        script: the page's own script, which may talk to the server that the page is from; "": none.
        has_plots: whether the page draws.
    """
    allowed = " ".join(f"'sha256-{_digest(each)}'" for each in _programs(script) if has_plots) or "'none'"
    connects = "connect-src 'self'; " if script else ""
    # plotly.js sets styles, and draws pictures that it has made itself
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"{connects}base-uri 'none'; form-action 'none'"
    )


def _programs(script: str) -> list[bytes]:
    return [_library(), _text("plots.js").encode(), *([script.encode()] if script else [])]


def _lines(text: str) -> str:
    return "<br>".join(map(escape, text.split("\n")))


@cache
def _library() -> bytes:
    """Return plotly.js, 5 MB. It is read from the files of its package, whose modules nobody imports."""
    found = find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("plotly is not installed", name="plotly")
    text = Path(found.submodule_search_locations[0], "package_data", "plotly.min.js").read_bytes()
    if b"</script" in text or b"<!--" in text:
        raise ValueError("this version of plotly.js cannot stand in a page")
    return text


@cache
def _digest(script: bytes) -> str:
    return base64.b64encode(hashlib.sha256(script).digest()).decode()


@cache
def _text(name: str) -> str:
    return files("seedbus.scenarios.reporting").joinpath(name).read_text(encoding="utf-8")
