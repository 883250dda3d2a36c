"""Runs what a page of the documentation shows: its files are written, its commands run, and their output compared.

- A block with a title, ```yaml title="mine.yaml", is a file.
- A block of the language `console` holds commands (`$ …`), each followed by what it prints on stdout and stderr.
- `<!-- not run: why -->` before a block keeps it from being run.

In the printed text, a line `…` stands for any lines, and `…` in a line for any text. Numbers and digests may differ:
losses depend on the processor, and times on everything. (That bytes are what they were is for other tests to say.)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>.+?) -->\n+)?"
    r'```(?P<language>\w+)(?: title="(?P<title>.+?)")?\n(?P<text>.*?)^```$',
    re.M | re.S,
)
_TOKEN = re.compile(r"(?P<digest>\b[0-9a-f]{32}\b)|(?P<number>\d[\d,]*(?:\.\d+)?)|(?P<any>…)")
_MAY_BE = {"digest": "[0-9a-f]{32}", "number": r"[\d.,]+", "any": ".*"}
WITHIN_S = 300


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: its language.
        title: the file that it is; "" for none.
        text: its content.
        line: its first line in the page.
        why_not: why it is not run; "" if it is.
    """

    language: str
    title: str
    text: str
    line: int
    why_not: str

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Its commands, each with what it prints."""
        parts = re.split(r"^\$ ((?:.*\\\n)*.*)\n", self.text, flags=re.M)[1:]
        return list(zip(parts[::2], parts[1::2], strict=True))


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page that name a language."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(found["language"], found["title"] or "", found["text"], line, found["why"] or "")


def follow(page: Path, folder: Path) -> Iterator[str]:
    """Do what a page shows, in an empty folder, and yield each difference between what it shows and what is printed."""
    for block in blocks(page):
        if block.title:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "console" and not block.why_not:
            for command, shown in block.commands:
                printed = _run(command, folder)
                if not _pattern(shown).fullmatch(_trimmed(printed)):
                    lines = unified_diff(shown.splitlines(), _trimmed(printed).splitlines(), "shown", "printed", n=1)
                    yield "\n".join([f"{page.name}, line {block.line}: {command}", *lines])


def _run(command: str, folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "TERM": "dumb"}
    done = subprocess.run(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=environment,
        text=True,
        timeout=WITHIN_S,
    )
    return done.stdout


def _trimmed(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _pattern(shown: str) -> re.Pattern[str]:
    lines = _trimmed(shown).splitlines()
    return re.compile("".join("(?:.*\n)*?" if line.strip() == "…" else f"{_line(line)}\n" for line in lines))


def _line(line: str) -> str:
    parts, at = [], 0
    for found in _TOKEN.finditer(line):
        parts.append(_spaced(line[at : found.start()]))
        parts.append(_MAY_BE[str(found.lastgroup)])
        at = found.end()
    return "".join([*parts, _spaced(line[at:])])


def _spaced(text: str) -> str:
    """Return a pattern of a text in which any spaces match any spaces: columns are as wide as their numbers."""
    return re.sub(r"(?:\\ )+", r"[ ]+", re.escape(text))
