"""Shamir's sharing: any t shares recover a secret, and t − 1 fit every secret."""

from __future__ import annotations

import os
from itertools import combinations

import pytest

from seedbus.agents.secure.sharing import PRIME, SECRET_BYTES, SHARE_BYTES, is_share, recover, split


@pytest.mark.parametrize("secret", [bytes(16), b"\xff" * 16, b"sixteen bytes, x"])
def test_any_t_shares_recover_the_secret(secret: bytes) -> None:
    holders = [0, 3, 7, 8, 2**24 - 1]
    shares = dict(zip(holders, split(secret, holders, 3), strict=True))
    for some in [*combinations(holders, 3), *combinations(holders, 5)]:
        assert recover({holder: shares[holder] for holder in some}) == secret


def test_fewer_than_t_shares_fit_every_secret() -> None:
    """For two of three shares and any secret there is a third share that leads to it."""
    shares = dict(zip((1, 2), split(os.urandom(16), [1, 2, 3], 3), strict=False))
    points = {0: 0} | {holder + 1: int.from_bytes(share, "little") for holder, share in shares.items()}
    for secret in (bytes(16), b"\x01" * 16, os.urandom(16)):
        points[0] = int.from_bytes(secret, "little")
        third = 0
        for x, y in points.items():
            for other in points:
                if other != x:
                    y = y * (4 - other) * pow(x - other, -1, PRIME) % PRIME
            third += y
        assert recover({**shares, 3: (third % PRIME).to_bytes(SHARE_BYTES, "little")}) == secret
    assert recover(shares) != secret


def test_a_share_below_the_prime_and_no_other_is_accepted() -> None:
    assert is_share((PRIME - 1).to_bytes(SHARE_BYTES, "little"))
    assert not is_share(PRIME.to_bytes(SHARE_BYTES, "little"))
    assert not is_share(bytes(SHARE_BYTES - 1))
    assert recover({0: (PRIME - 1).to_bytes(SHARE_BYTES, "little")}) is None
    with pytest.raises(ValueError, match="4 of 3 shares"):
        split(bytes(SECRET_BYTES), [1, 2, 3], 4)
