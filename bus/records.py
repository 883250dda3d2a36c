"""Records: what msgpack has unpacked, as typed values.

A record is a named tuple, so msgpack packs it as one array. Its annotations are its form: whatever a peer or a file
says, `record` returns a value of that form or says in a few words where it has another.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Also below 0; no more than a column of the ledger, or of SQLite, has room for."""
Number = int | float
Text = Annotated[str, Meta(max_length=10_000)]


def record(form: type[T], value: Any) -> T:
    """Return an unpacked value as one of this form.

    Args:
        form: a named tuple, or any type of which `msgspec` knows the form. Nothing is converted: a `str` is no number.
        value: what `msgpack.unpackb` or `json.loads` returned.

    Raises:
        ValueError: it has another form; the sentence has nothing of the value but names of types and positions.
    """
    try:
        return msgspec.convert(value, form, builtin_types=(bytes,))
    except msgspec.ValidationError as error:  # which is no ValueError in older versions
        raise ValueError(str(error)) from None
