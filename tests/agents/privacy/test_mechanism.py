"""Clipping in whole numbers and the noise that is added: what one client can change is bounded, exactly."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seedbus.agents.policies.participation import Participation
from seedbus.agents.privacy.mechanism import Mechanism, clipped
from seedbus.agents.privacy.settings import Privacy

pytest.importorskip("dp_accounting", reason="privacy needs dp-accounting: pip install 'seedbus[privacy]'")

MOST = 2**31 - 1
ONE, FIVE = (Participation(clients=5, quorum=quorum) for quorum in (1, 5))
reports = st.lists(st.integers(-MOST, MOST), min_size=1, max_size=12)


def square(numbers: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int:
    return sum(int(number) ** 2 for number in numbers.ravel())


@given(reports, reports, st.integers(1, MOST))
@example([MOST] * 12, [-MOST] * 12, MOST)
@example([3, 4], [0, 0], 5)
@example([1] * 5, [0] * 5, 2)
def test_no_client_changes_the_sum_by_more_than_the_clip(one: list[int], other: list[int], clip: int) -> None:
    size = min(len(one), len(other))
    x, y = (np.array(numbers[:size], np.int32) for numbers in (one, other))
    short, replaced = clipped(x, clip), clipped(y, clip)
    assert square(short) <= clip**2  # to zeros, and from zeros
    assert square(short - replaced) <= (2 * clip) ** 2  # to any other report
    assert (np.sign(short) * np.sign(x) >= 0).all() and (np.abs(short) <= np.abs(x.astype(np.int64))).all()
    if square(x.astype(np.int64)) <= clip**2:
        assert (short == x).all()
    else:  # each number is the largest that is not beyond the scaled one
        assert all(
            (abs(int(s)) + 1) ** 2 * square(x.astype(np.int64)) > int(n) ** 2 * clip**2
            for s, n in zip(short, x, strict=True)
        )
    assert (clipped(short, clip) == short).all()


def test_shares_of_as_many_clients_as_a_quorum_amount_to_the_whole_noise() -> None:
    settings: dict[str, Any] = {"clip": 1000, "noise_multiplier": 2.0, "noise": "seeded"}
    central = Mechanism(Privacy(mechanism="central", **settings), FIVE, 1, is_virtual=True)
    shared = Mechanism(Privacy(mechanism="distributed", **settings), FIVE, 1, is_virtual=True)
    nothing = np.zeros((40, 50), np.int32)
    whole = central.sum(0, [central.protect(client, 0, nothing) for client in range(5)])
    parts = {client: shared.protect(client, 0, nothing) for client in range(5)}
    assert not central.protect(0, 0, nothing).any() and (shared.sum(0, parts.values()) == sum(parts.values())).all()
    for noise in (whole, shared.sum(0, parts.values())):
        assert abs(noise.std() / 2000 - 1) < 5 / np.sqrt(2 * noise.size)
    assert not (parts[0] == parts[1]).any(axis=None, where=parts[0] != 0)
    assert not (central.sum(1, [nothing]) == whole).all()  # another round has other noise


@pytest.mark.parametrize(("mechanism", "quorum", "variance"), [("central", 3, 211), ("distributed", 3, 71)])
def test_the_variance_of_a_draw_is_rounded_up(mechanism: Any, quorum: int, variance: int) -> None:
    assert Privacy(mechanism=mechanism, clip=1, noise_multiplier=14.5).variance(quorum) == variance


@pytest.mark.parametrize(("mechanism", "largest"), [("central", 500 + 14 * 200), ("distributed", 500 + 5 * 14 * 100)])
def test_a_sum_has_room_for_fourteen_sigma_of_the_server_or_of_each_client(mechanism: Any, largest: int) -> None:
    assert Privacy(mechanism=mechanism, clip=100, noise_multiplier=2.0).largest_sum(4, 5) == largest


def test_a_report_whose_noise_does_not_fit_into_32_bits_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Mechanism(Privacy(mechanism="distributed", clip=9, noise_multiplier=8.0), ONE, 1, is_virtual=True)
    for noise in (MOST, -MOST, MOST + 1, -MOST - 1):
        monkeypatch.setattr(shared, "_draws", lambda shape, *_, noise=noise: np.full(shape, noise))
        if abs(noise) == MOST:
            assert (shared.protect(0, 0, np.zeros((1, 2), np.int32)) == noise).all()
        else:
            with pytest.raises(OverflowError, match="more than 32 bits"):
                shared.protect(0, 0, np.zeros((1, 2), np.int32))


def test_a_server_clips_what_clients_did_not() -> None:
    settings = Privacy(clip=1000, noise_multiplier=0.01, noise="seeded")
    total = Mechanism(settings, ONE, 1, is_virtual=True).sum(0, [np.full((1, 4), 10**9, np.int32)])
    assert (np.abs(total - 500) < 150).all()


def test_noise_of_the_operating_system_differs_from_run_to_run_and_is_the_default_in_real_time() -> None:
    nothing = np.zeros((1, 8), np.int32)
    for noise, is_virtual in product((None, "seeded", "system"), (True, False)):
        settings = Privacy(clip=10**6, noise_multiplier=1.0, noise=noise)
        one, two = (Mechanism(settings, ONE, 1, is_virtual=is_virtual).sum(0, [nothing]) for _ in range(2))
        assert (one == two).all() == (noise == "seeded" or (noise is None and is_virtual))
