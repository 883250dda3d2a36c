"""Shamir's secret sharing: t shares of a secret recover it, and fewer say nothing about it.

    f(X) = secret + a₁X + … + a_{t−1}X^{t−1}  modulo  p = 2¹³⁰ − 5,     share of holder i: f(i + 1)

Shamir, "How to share a secret", Communications of the ACM 22 (11), 1979. A secret has 16 bytes and a share 17.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache

PRIME = 2**130 - 5
SECRET_BYTES = 16
SHARE_BYTES = 17


def split(secret: bytes, holders: Sequence[int], needed: int) -> list[bytes]:
    """Return a share for each holder.

    Args:
        secret: `SECRET_BYTES` bytes.
        holders: numbers from 0 on, below `PRIME` − 1, none twice.
        needed: t, how many shares recover the secret; at least 1.
    """
    if len(secret) != SECRET_BYTES or not 1 <= needed <= len(holders):
        raise ValueError(f"{needed} of {len(holders)} shares of a secret of {len(secret)} bytes")
    coefficients = [int.from_bytes(secret, "little"), *(_draw() for _ in range(needed - 1))]
    return [_value(coefficients, holder + 1).to_bytes(SHARE_BYTES, "little") for holder in holders]


def recover(shares: Mapping[int, bytes]) -> bytes | None:
    """Return the secret that these shares, by holder, belong to; None if that is no secret of `SECRET_BYTES`.

    From fewer than t shares it returns nothing of use.
    """
    secret = _at_zero(shares)
    return secret.to_bytes(SECRET_BYTES, "little") if secret < 2 ** (8 * SECRET_BYTES) else None


def agree(shares: Mapping[int, bytes], needed: int) -> bool:
    """Whether shares, by holder, belong to one secret: any t of them do, and of more a single false one shows."""
    return _at_zero(shares) == _at_zero({holder: shares[holder] for holder in sorted(shares)[:needed]})


def is_share(value: bytes) -> bool:
    """Whether bytes may be a share."""
    return len(value) == SHARE_BYTES and int.from_bytes(value, "little") < PRIME


def _draw() -> int:
    """Return a number below `PRIME`, all equally likely."""
    while True:
        number = int.from_bytes(os.urandom(SHARE_BYTES), "little") >> (8 * SHARE_BYTES - PRIME.bit_length())
        if number < PRIME:
            return number


def _at_zero(shares: Mapping[int, bytes]) -> int:
    holders = tuple(sorted(shares))
    values = (int.from_bytes(shares[holder], "little") for holder in holders)
    return sum(y * weight for y, weight in zip(values, weights(holders), strict=True)) % PRIME


@lru_cache(64)
def weights(holders: tuple[int, ...]) -> list[int]:
    """Return by how much the value of each holder counts at 0; most secrets of a round have the same holders."""
    result = []
    for holder in holders:
        above = below = 1
        for other in holders:
            if other != holder:
                above = above * (other + 1) % PRIME
                below = below * (other - holder) % PRIME
        result.append(above * pow(below, -1, PRIME))
    return result


def _value(coefficients: Sequence[int], x: int) -> int:
    result = 0
    for coefficient in reversed(coefficients):
        result = (result * x + coefficient) % PRIME
    return result
