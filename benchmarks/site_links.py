"""The links of the site: a hook of mkdocs for those that leave docs/, and a list of the dead ones.

    python benchmarks/site_links.py build/site      exit code 1 if a link, a picture or an anchor is missing

The site has no pages for files outside docs/: the hook makes links to them these files' names.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!(?:tutorials/|how-to/|explanation/)?[\w-]+\.md)([^)]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page's text without links to what is outside docs/."""
    return _OUTSIDE.sub(lambda link: f"{link[1]}" if "`" in link[1] else f"`{link[2]}`", markdown)


class _Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.add(value or "")
            elif name in ("id", "name"):
                self.anchors.add(value or "")


def dead_links(site: Path) -> tuple[int, list[str]]:
    """Return how many links to its own files a site has, and those that lead nowhere, as `page: link`.

    Args:
        site: its folder. A link to another host is not followed.
    """
    pages = {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    count, dead = 0, []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are relative to the root of a server
            continue
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                dead.append(f"{path.relative_to(site.resolve())}: {link}")
    return count, dead


def main() -> None:
    count, dead = dead_links(Path(sys.argv[1]))
    print("\n".join([f"{count:,} links between pages, {len(dead)} of them dead", *dead]))
    sys.exit(bool(dead))


if __name__ == "__main__":
    main()
