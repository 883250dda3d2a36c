"""The instrument of the soak test reads a live server and tells growth from noise."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import soak
from soak import Sample


def samples(resident_mb: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[Sample]:
    """Return samples every 36 s of a run with ten rounds a second."""
    return [
        Sample(36.0 * n, float(mb), 5, 30, 360 * n, 0.1 * n, 0.2 * n, n, n // 2, 0) for n, mb in enumerate(resident_mb)
    ]


def test_the_slope_is_that_of_the_last_half() -> None:
    begins, grows = np.linspace(40, 76, 50), 76 + 0.12 * np.arange(50)
    hourly, each = soak.slope(samples(np.concatenate([begins, grows])))
    assert hourly == pytest.approx(12.0) and each == pytest.approx(0.12 / 0.36)
    flat, _ = soak.slope(samples(np.concatenate([begins, np.full(50, 76.0)])))
    assert flat == pytest.approx(0.0, abs=1e-9)


def test_what_is_drawn_is_one_image_that_a_browser_reads() -> None:
    root = ElementTree.fromstring(soak.plots(samples(np.linspace(70, 80, 20))))
    parts = [str(each.get("id")) for each in root.iter("{http://www.w3.org/2000/svg}g")]
    assert sum(each.startswith("axes_") for each in parts) == 6


@pytest.mark.slow
def test_a_server_with_clients_that_come_and_go_is_read_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "STAYS_S", (2.0, 4.0))
    monkeypatch.setattr(soak, "AWAY_S", (0.0, 1.0))
    found = soak.soak(0.3, 1.0, 1, tmp_path)
    last = found[-1]
    assert last.rounds > 10 and last.joined > 1 and last.left + last.killed > 0
    assert 20 < last.resident_mb < 300 and last.descriptors > 10 and last.folder_mb > last.log_mb > 0
    assert (tmp_path / "soak.csv").read_text().count("\n") == len(found) + 1
    assert "over the last half" in soak.told(found) and (tmp_path / "soak.svg").exists()
    assert "Traceback" not in capfd.readouterr().err
