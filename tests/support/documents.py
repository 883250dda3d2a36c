"""Runs what a page of the documentation shows: its files are written, its commands run, and their output compared.

    python tests/support/documents.py          counts the commands under test, and those that are not, page by page
    python tests/support/documents.py PAGE …   runs pages, and writes what is printed where they show another thing

- A block with a title, ```yaml title="mine.yaml", is a file.
- A block of the language `console` holds commands (`$ …`), each followed by what it prints on stdout and stderr.
- `<!-- not run: why -->` before a block keeps it from being run. After `<!-- run, output not shown -->` its commands
  are run, each must end with exit code 0, and what they print is not compared.

A page is followed in an empty folder with a link to examples/.

In the printed text, a line `…` stands for any lines, and `…` in a line for any text. A long line may be
broken at a space. Numbers and digests may differ: losses depend on the processor, and times on everything. (That bytes
are what they were is for other tests to say.)
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
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"^(?:<!-- (?:not run: (?P<why>.+?)|(?P<silent>run, output not shown)) -->\n+)?"
    r'```(?P<language>\w*)(?: title="(?P<title>.+?)")?\n(?P<text>.*?)^```$',
    re.M | re.S,
)
_TOKEN = re.compile(r"(?P<digest>\b[0-9a-f]{32}\b)|(?P<number>\d[\d,]*(?:\.\d+)?)|(?P<any>…)")
_MAY_BE = {"digest": "[0-9a-f]{32}", "number": r"[\d.,]+", "any": ".*"}
WITHIN_S = 600


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
    """

    language: str
    title: str
    text: str
    line: int
    why_not: str
    is_shown: bool

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Its commands, each with what it prints."""
        parts = re.split(r"^\$ ((?:.*\\\n)*.*)\n", self.text, flags=re.M)[1:]
        return list(zip(parts[::2], parts[1::2], strict=True))


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(
            found["language"], found["title"] or "", found["text"], line, found["why"] or "", not found["silent"]
        )


@dataclass(frozen=True)
class Difference:
    """A command that prints something else than its page shows.

    Attributes:
        line: the first line of its block in the page.
        command: the command.
        shown: what the page shows.
        printed: what was printed.
    """

    line: int
    command: str
    shown: str
    printed: str

    def __str__(self) -> str:
        lines = unified_diff(self.shown.splitlines(), self.printed.splitlines(), "shown", "printed", n=1)
        return "\n".join([f"line {self.line}: {self.command}", *lines])


def follow(page: Path, folder: Path, *, is_exact: bool = False) -> Iterator[Difference]:
    """Do what a page shows, and yield each difference between what it shows and what is printed.

    Args:
        page: the page.
        folder: an empty folder.
        is_exact: in outputs that are shown without `…`, numbers and digests may not differ either.
    """
    (folder / "examples").symlink_to(ROOT / "examples")
    for block in blocks(page):
        if block.title:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "console" and not block.why_not:
            for command, shown in block.commands:
                code, text = _run(command, folder)
                printed = _trimmed(text)
                if not block.is_shown:
                    if code:
                        yield Difference(block.line, command, "exit code 0\n", f"{printed}exit code {code}\n")
                    continue
                is_other = is_exact and "…" not in shown and shown != printed
                if is_other or not _pattern(shown).fullmatch(printed):
                    yield Difference(block.line, command, shown, printed)


def _run(command: str, folder: Path) -> tuple[int, str]:
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
    return done.returncode, done.stdout


def _trimmed(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _pattern(shown: str) -> re.Pattern[str]:
    lines = _trimmed(shown).splitlines()
    return re.compile("".join("(?:.*\n)*?" if line.strip() == "…" else f"{_line(line)}[ \n]" for line in lines))


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


def _count() -> None:
    """Print the number of commands of each page that are run, and the blocks that are not."""
    in_all = 0
    for page in PAGES:
        shells = [block for block in blocks(page) if block.language == "console"]
        run = sum(len(block.commands) for block in shells if not block.why_not)
        in_all += run
        if shells:
            print(f"{run:4} {page.relative_to(ROOT)}")
        for block in shells:
            if block.why_not:
                print(f"       line {block.line}: {len(block.commands)} not run: {block.why_not}")
    print(f"{in_all:4} commands are run")


def _write(page: Path) -> None:
    """Run a page, and write what its commands print where the page shows something else."""
    with TemporaryDirectory() as folder:
        for difference in follow(page, Path(folder), is_exact=True):
            print(f"{page.name}, {difference}")
            order = f"$ {difference.command}\n"
            text = page.read_text(encoding="utf-8")
            page.write_text(text.replace(order + difference.shown, order + difference.printed, 1), encoding="utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        _write(Path(each))
    if not sys.argv[1:]:
        _count()
