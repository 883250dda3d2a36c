"""The blocks of code in the pages of the documentation, and the marks before them.

- A block with a title, ```yaml title="mine.yaml", is a file.
- A block of the language `console` holds commands (`$ …`, or `head$ …` on another machine), each followed by what it
  prints on stdout and stderr. A block of the language `python` is a program.
- `<!-- not run: why -->` before a block keeps it from being run.
- `<!-- run, MARK, MARK -->` before a block says how it is run:
  `output not shown`: each command must end with exit code 0, and what it prints is not compared.
  `figures vary`: whole numbers and bytes may differ, as other figures may anywhere.
  `in 2 rounds`: each `seedbus run` ends after 2 rounds; what takes hours is only tried.
  `within 90 s`: what one of its commands may take on two quiet cores; without it, 30 s.
  `soak`: it takes minutes or hours, and `make soak` runs it.
- `<!-- table by: COMMAND -->` stands before tables and lists that a command prints as Markdown; `make soak` runs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "PACKAGE.md", "CONTRIBUTING.md", "AGENTS.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
WITHIN_S = 30

_BLOCK = re.compile(
    r"^(?:<!-- (?:not run: (?P<why>.+?)|run, (?P<marks>.+?)) -->\n+)?"
    r'```(?P<language>\w*)(?: title="(?P<title>.+?)")?\n(?P<text>.*?)^```$',
    re.M | re.S,
)
_TABLE = re.compile(r"^<!-- table by: (?P<command>.+?) -->\n+(?P<text>(?:(?:\||- ).*\n|\n(?=\||- ))+)", re.M)
_COMMAND = re.compile(r"^\w*\$ ((?:.*\\\n)*.*)\n", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: its language.
        title: the file that it is; "" for none.
        text: its content.
        line: its first line in the page.
        why_not: why it is not run; "" if it is.
        is_shown: whether what its commands print follows them.
        is_exact: whether whole numbers and bytes have to be those that are shown.
        is_soak: whether it is too long for continuous integration.
        within_s: seconds that one of its commands may take on two quiet cores.
        rounds: after how many rounds a `seedbus run` ends; 0 for its scenario's.
    """

    language: str
    title: str
    text: str
    line: int
    why_not: str
    is_shown: bool = True
    is_exact: bool = True
    is_soak: bool = False
    within_s: int = WITHIN_S
    rounds: int = 0

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Its commands, each with what it prints; a program is one."""
        if self.title or self.language not in ("console", "python"):
            return []
        if self.language == "python":
            return [(self.text, "")]
        parts = _COMMAND.split(self.text)[1:]
        return list(zip(parts[::2], parts[1::2], strict=True))


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page.

    Raises:
        ValueError: there is no such mark.
    """
    text = page.read_text(encoding="utf-8")
    for found in sorted([*_BLOCK.finditer(text), *_TABLE.finditer(text)], key=re.Match.start):
        line = text.count("\n", 0, found.start()) + 1
        if found.re is _TABLE:
            yield Block("console", "", f"$ {found['command']}\n{found['text']}", line, "", is_soak=True)
            continue
        marks = _marks(found["marks"].split(", ") if found["marks"] else [], f"{page.name}, line {line}")
        yield Block(found["language"], found["title"] or "", found["text"], line, found["why"] or "", **marks)


def _marks(marks: list[str], where: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for mark in marks:
        if seconds := re.fullmatch(r"within (\d+) s", mark):
            fields["within_s"] = int(seconds[1])
        elif rounds := re.fullmatch(r"in (\d+) rounds", mark):
            fields["rounds"] = int(rounds[1])
        elif mark == "output not shown":
            fields["is_shown"] = False
        elif mark == "figures vary":
            fields["is_exact"] = False
        elif mark == "soak":
            fields["is_soak"] = True
        else:
            raise ValueError(
                f"{where}: {mark} is no mark; expected output not shown, figures vary, in 2 rounds, within 90 s or soak"
            )
    return fields
