"""The messages of secure aggregation: what the server asks in each stage of a round, and what a client tells.

    stage    ASK                                                      TELL
    KEYS     [0]                                                      [0, own public keys]
    SHARES   [1, neighbours, their public keys]                       [1, shares sealed for each neighbour]
             a PLAN ends with the neighbours that have shared         a REPORT is masked, and ends with the
                                                                      numbers that are told beside it, if any
    CONFIRM  [3, neighbours that have reported]                       [3, a confirmation for each of these]
    UNMASK   [2, neighbours that have confirmed, confirmations by     [2, a share of each neighbour that has shared,
              these, shares from each neighbour that has shared]       then one of its own self mask]

Clients are columns of uint32; a subset of a client's neighbours is a bitmap. A client that refuses tells
[stage, reason, sentence]. One that was asked to unmask, and got confirmations or shares that are not valid, tells
[2, reason, sentence, the other shares or b"", neighbours whose shares are not valid, neighbours whose confirmations are
not valid].
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Collection, Sequence
from typing import Any

from seedbus.algorithms.contract import BadPayload
from seedbus.bus import Envelope

REFUSALS = frozenset({"no-masks", "asks-for-both", "bad-shares", "unconfirmed"})
DETAIL = 300
"""How many characters a sentence has at most."""


class Stage(enum.IntEnum):
    """The stages of a round. Their numbers are wire format; `BEFORE_PLANS` and `AFTER_REPORTS` have their order."""

    KEYS = 0
    SHARES = 1
    UNMASK = 2
    CONFIRM = 3


BEFORE_PLANS = (Stage.KEYS, Stage.SHARES)
AFTER_REPORTS = (Stage.CONFIRM, Stage.UNMASK)
ORDER = (*BEFORE_PLANS, *AFTER_REPORTS)


def pack_clients(clients: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(clients)}I", *clients)


def unpack_clients(column: bytes) -> list[int]:
    """Return the clients of a column, which has to be ascending. Raises `BadPayload`."""
    if len(column) % 4:
        raise BadPayload(f"a column of clients has {len(column)} bytes, no multiple of 4")
    clients = list(struct.unpack(f"<{len(column) // 4}I", column))
    if clients != sorted(set(clients)):
        raise BadPayload("clients that do not ascend")
    return clients


def pack_subset(subset: Collection[int], clients: Sequence[int]) -> bytes:
    """Return which of the clients are in a subset, a bit each."""
    bits = sum(1 << at for at, client in enumerate(clients) if client in subset)
    return bits.to_bytes(-(-len(clients) // 8), "little")


def unpack_subset(packed: bytes, clients: Sequence[int]) -> list[int]:
    """Return the clients of a subset. Raises `BadPayload`."""
    bits = int.from_bytes(packed, "little")
    if len(packed) != -(-len(clients) // 8) or bits >> len(clients):
        raise BadPayload(f"a subset of {len(clients)} neighbours in {len(packed)} bytes")
    return [client for at, client in enumerate(clients) if bits >> at & 1]


def pieces(column: bytes, width: int, count: int) -> list[bytes]:
    """Cut a column of `count` values of `width` bytes. Raises `BadPayload`."""
    if len(column) != width * count:
        raise BadPayload(f"a column has {len(column)} bytes, not {count} times {width}")
    return [column[start : start + width] for start in range(0, len(column), width)]


def fields(envelope: Envelope, *types: type) -> list[Any]:
    """Return what follows the stage in a body. Raises `BadPayload`."""
    stage, *rest = envelope.body
    if [type(each) for each in rest] != list(types):
        raise BadPayload(f"stage {stage} of secure aggregation holds {len(types)} byte strings after its number")
    return rest


def stage_of(envelope: Envelope) -> Stage:
    """Return the stage of an ASK or TELL. Raises `BadPayload`."""
    if not envelope.body or type(envelope.body[0]) is not int or envelope.body[0] not in list(Stage):
        raise BadPayload("secure aggregation has the stages 0 to 3")
    return Stage(envelope.body[0])
