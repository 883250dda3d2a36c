"""What the files of this room share: how a broken promise is raised, and the comparison of values bit for bit.

A promise is a function of one thing that was made from a scenario's words. Its docstring is the promise in one
sentence; it returns None if it is kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from seedbus.bus import Envelope, Kind, decode, encode

Promise = Callable[[Any], None]


def promise_of(check: Promise) -> str:
    """Return a promise in words."""
    return " ".join((check.__doc__ or check.__name__.replace("_", " ")).split()).rstrip(".")


def require(holds: object, found: str) -> None:
    """Raise AssertionError with what was found, unless it holds."""
    if not holds:
        raise AssertionError(found)


def require_same(found: Any, expected: Any, what: str, wanted: str) -> None:
    """Raise AssertionError unless two values have the same bits; what and wanted: what each of them is."""
    if bits(found) != bits(expected):
        raise AssertionError(f"{what} is {brief(found)}, {wanted} {brief(expected)}{_difference(found, expected)}")


def bits(value: Any) -> Any:
    """Return a value that compares bit for bit: 0 and −0 differ, and a NaN equals itself."""
    if dataclasses.is_dataclass(value):
        return type(value), [bits(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if hasattr(value, "__array_function__"):  # an array, or a vector on a device
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: bits(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [bits(element) for element in value]
    return (float, struct.pack("<d", value)) if isinstance(value, float) else (type(value), value)


def digest(value: Any) -> str:
    """Return a digest of a value's bits, 32 hexadecimal digits."""
    return hashlib.blake2b(repr(bits(value)).encode(), digest_size=16).hexdigest()


def brief(value: Any) -> str:
    """Return a value as a few words."""
    if hasattr(value, "__array_function__"):
        value = np.asarray(value)
        flat = value.reshape(-1)
        numbers = ", ".join(f"{each:.9g}" for each in flat[:3].tolist())
        return f"{value.dtype} {list(value.shape)} ({numbers}{', …' if flat.size > 3 else ''})"
    if dataclasses.is_dataclass(value):
        fields = [f"{field.name}: {brief(getattr(value, field.name))}" for field in dataclasses.fields(value)]
        return f"{type(value).__name__} {{{', '.join(fields)}}}"
    if isinstance(value, list | tuple) and any(isinstance(each, np.ndarray) for each in value):
        return f"[{', '.join(map(brief, value[:3]))}{', …' if len(value) > 3 else ''}]"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _difference(found: Any, expected: Any) -> str:
    """Say where two arrays of one shape differ first."""
    if not (isinstance(found, np.ndarray) and isinstance(expected, np.ndarray) and found.shape == expected.shape):
        return ""
    differing = np.flatnonzero((found != expected).reshape(-1))
    if not differing.size:
        return ""
    at = int(differing[0])
    one, other = found.reshape(-1)[at], expected.reshape(-1)[at]
    return f"; {differing.size} of {found.size} numbers differ, the first at {at}: {one:.9g} and {other:.9g}"


def over_the_wire(body: Any) -> Any:
    """Return a body as the recipient decodes it, within the limits of the bus."""
    return decode(encode(Envelope(Kind.PLAN, 0, 0, 0, body))[0]).body


def bytes_of(body: Any) -> int:
    """Return the bytes that a body takes on the wire."""
    frame, header = encode(Envelope(Kind.PLAN, 0, 0, 0, body))
    return len(frame) - header


def seed_of(round: int) -> int:
    """Return the 64 bits that key a rehearsed round."""
    return int.from_bytes(hashlib.blake2b(str(round).encode(), digest_size=8).digest(), "little")


ODD: tuple[Any, ...] = (None, True, -1, 0, 2**40, float("nan"), "", "text", b"", b"\xff" * 7, [], [[]], [None, b""], {})
"""Plain values, as a hostile peer might send any of them in the place of any other."""


def spoiled(body: Any) -> Iterator[Any]:
    """Yield bodies that no honest peer sends: odd values, and a good body with one part replaced, missing or cut."""
    yield from ODD
    if isinstance(body, list):
        for place, part in enumerate(body):
            yield [*body[:place], *body[place + 1 :]]
            yield [*body[:place], part, *body[place:]]
            for other in spoiled(part):
                yield [*body[:place], other, *body[place + 1 :]]
    elif isinstance(body, bytes) and body:
        yield from (body[:-1], body + b"\0", body * 2, bytes(len(body)), b"\xff" * len(body))
        yield from (body[: len(body) // 2] + b"\x80\x7f" + body[len(body) // 2 + 2 :], body[::-1])
    elif isinstance(body, int | float) and not isinstance(body, bool):
        yield from (body + 1, -body - 1, body * 2**20, float("inf"))
