"""`llms.txt`, by which a language model finds the page that it needs: each page of the site's navigation, in a line.

    python benchmarks/llms.py --write

A line is a page's title in `mkdocs.yml`, or its own, its path, and its first sentence.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]


_NO_SENTENCE = ("#", "```", "|", "<!", "-", "![", ":::")


class _Loader(yaml.SafeLoader):
    """Reads `mkdocs.yml`, whose navigation has no tags."""


_LOADER: Any = _Loader
_LOADER.add_multi_constructor("", lambda loader, suffix, node: None)


def text() -> str:
    """Return what the file is to hold."""
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=_LOADER)
    head = f"# {site['site_name']}\n\n> {site['site_description']}. How to work on it: [AGENTS.md](AGENTS.md)\n\n"
    return head + "\n".join(_lines(site["nav"])) + "\n"


def _lines(entries: list[Any], title: str = "") -> Iterator[str]:
    for entry in entries:
        name, what = next(iter(entry.items())) if isinstance(entry, dict) else (title, entry)
        if isinstance(what, list):
            yield f"\n## {name}\n"
            yield from _lines(what)
        else:
            page = (ROOT / "docs" / what).read_text(encoding="utf-8")
            own = re.search(r"^# (.+)$", page, re.MULTILINE)
            yield f"- [{name or (own[1] if own else what)}](docs/{what}): {_first_sentence(page)}"


def _first_sentence(page: str) -> str:
    """Return the first sentence of a page's first paragraph, without links and emphasis."""
    paragraphs = (each.strip() for each in page.partition("\n")[2].split("\n\n"))
    plain = next((each for each in paragraphs if each and not each.startswith(_NO_SENTENCE)), "")
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)|\*\*", lambda found: found[1] or "", plain.replace("\n", " "))
    return re.split(r"(?<=[.?])\s", plain)[0]


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        (ROOT / "llms.txt").write_text(text(), encoding="utf-8")
    else:
        print(text(), end="")
