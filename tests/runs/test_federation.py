"""`make federation` in short: owners' data stay with them, on machines and under users of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import federation
import federation_capture
import federation_cases
import numpy as np
import pytest
from namespaces import Machines, Refused

PROGRAM = Path(federation.__file__)


def lacks() -> str:
    """Return what keeps the program from running here; "": nothing."""
    if missing := list(federation.missing()):
        return f"the federation needs {', '.join(missing)}"
    try:
        with Machines("trial"):
            return ""
    except Refused as refused:
        return f"the federation needs network namespaces, and this kernel refuses: {refused}"


def test_a_search_finds_each_encoding_of_a_row_and_nothing_in_noise() -> None:
    draw = np.random.default_rng(5)
    row = draw.normal(100, 20, 30).round(3)
    secrets = federation_cases.of_row(row, (row - 100) / 20) | {b"ward": "the name of a file"}
    noise = draw.bytes(300_000)
    assert federation_cases.searched(noise, secrets) == {}
    for secret, what in secrets.items():
        assert federation_cases.searched(noise[:777] + secret + noise[777:2000], secrets).get(secret) == what


def test_the_bytes_of_segments_are_joined_in_their_order_and_once() -> None:
    pieces = {10: b"abc", 13: b"defg", 12: b"cd", 17: b"hi"}
    assert federation_capture.joined(pieces) == b"abcdefghi"


def test_what_is_missing_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("sys.argv", ["federation.py"])
    with pytest.raises(SystemExit) as ended:
        federation.main()
    assert ended.value.code == 3
    assert capsys.readouterr().err.startswith(
        "the federation needs root, to make users' folders and network namespaces"
    )


@pytest.mark.slow
def test_three_owners_and_a_server_are_killed_and_searched_and_end_with_the_digest_of_the_rehearsal() -> None:
    if why := lacks():
        pytest.skip(why)
    command = [sys.executable, str(PROGRAM), "--only", "breast-cancer", "--rounds", "9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 looks into another's folder are refused" in done.stdout
    assert "east's process is killed" in done.stdout and "the server is killed" in done.stdout
    assert done.stdout.count("none has left its owner") == 2 and "sent on purpose are found" in done.stdout
    assert done.stdout.endswith("the digests are equal\n")
