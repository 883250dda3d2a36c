"""Files of mistakes: what is typed after --set, and the sentence that it gets.

A file is a list of blocks. A block says what its rows are `about`, what all of them `set`, and maps in `rows` what is
set besides, as on the command line, to the sentence that this gets, a list of them, or null where it is accepted.
In `commands/` the rows are command lines, and `set` what is typed before them; in `files/` they are the text of `file`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "mistakes"
WIDTH = 120

Said = str | list[str] | None


def blocks(file: str) -> list[dict[str, Any]]:
    """Return the blocks of a file, which is named without its ending."""
    found: list[dict[str, Any]] = yaml.safe_load((FOLDER / f"{file}.yaml").read_text(encoding="utf-8"))
    return found


def settings(block: dict[str, Any], typed: str) -> list[str]:
    """Return all that a row sets."""
    return [*block.get("set", []), *typed.split(" --set ")]


def check(file: str, said: Callable[[dict[str, Any], str], Said], update: bool) -> None:
    """Compare what is said of each row with the file, or write it there; and the file with how it would be written."""
    path, before = FOLDER / f"{file}.yaml", blocks(file)
    now = [each | {"rows": {typed: said(each, typed) for typed in each["rows"]}} for each in before]
    if update:
        path.write_text(written(now), encoding="utf-8")
    for block, found in zip(before, now, strict=True):
        assert found["rows"] == block["rows"], block["about"]
    assert path.read_text(encoding="utf-8") == written(before), "pytest --update"


def written(blocks: list[dict[str, Any]]) -> str:
    """Return the text of a file with these blocks."""
    lines = []
    for block in blocks:
        lines.append(f"- about: {_text(block['about'])}")
        if "file" in block:
            lines.append(f"  file: {_text(block['file'])}")
        if "set" in block:
            lines += ["  set:", *(f"    - {_text(each)}" for each in block["set"])]
        lines.append("  rows:")
        for typed, said in block["rows"].items():
            lines += _row(_text(typed), said)
    return "\n".join(lines) + "\n"


def _row(typed: str, said: Said) -> list[str]:
    """Return the lines of a row: one, if it is short."""
    if isinstance(said, list):
        return [f"    {typed}:", *(line for each in said for line in _wrapped(each, "      - "))]
    line = f"    {typed}: {_text(said)}"
    return [line] if len(line) <= WIDTH else [f"    {typed}:", *_wrapped(said, "      ")]


def _wrapped(said: Said, indent: str) -> list[str]:
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(_text(said), WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent), **options)


def _text(value: Any) -> str:
    """Return plain data as YAML on one line."""
    style = '"' if isinstance(value, str) and "\n" in value else None
    text = yaml.safe_dump(
        value, width=10**6, default_style=style, default_flow_style=True, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")
