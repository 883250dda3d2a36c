"""Each wrong command line is one sentence on stderr with its exit code, before anything is computed or written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from mistake_files import FOLDER, check

from seedbus.scenarios.errors import Exit

FILES = sorted(path.stem for path in (FOLDER / "commands").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES)
def test_each_wrong_command_line_gets_its_sentence(file: str, seedbus: Command, pytestconfig: pytest.Config) -> None:
    typed_before = set[str]()

    def said(block: dict[str, Any], typed: str) -> str:
        for line in block.get("set", []):
            if line not in typed_before:
                assert seedbus(*shlex.split(line)).code == Exit.OK
                typed_before.add(line)
        before = sorted(Path().rglob("*"))
        answer = seedbus(*shlex.split(typed))
        assert (answer.out, answer.err.count("\n")) == ("", 1) and answer.err.isascii() | answer.err[:-1].isprintable()
        assert sorted(Path().rglob("*")) == before
        sentence = answer.err.removeprefix("seedbus: ").removesuffix("\n")
        return sentence if answer.code == Exit.USAGE else f"exit code {answer.code}: {sentence}"

    check(f"commands/{file}", said, pytestconfig.getoption("update"))


@pytest.mark.parametrize(
    ("typed", "pattern"),
    [
        ("run small.yaml --frob", "No such option: --frob.*; see `seedbus run --help`"),
        ("explain", "Missing argument .*; see `seedbus explain --help`"),
        ("explain small.yaml field", "Invalid value for '.*': 'field' is not one of 'fields', 'partition', 'pr.*"),
        ("export run model x", "Got unexpected extra argument.*"),
    ],
)
def test_what_click_says_in_its_own_words_is_one_sentence_too(seedbus: Command, typed: str, pattern: str) -> None:
    said = seedbus(*shlex.split(typed))
    assert (said.code, said.out) == (Exit.USAGE, "") and re.fullmatch(rf"seedbus: {pattern}\n", said.err), said.err
