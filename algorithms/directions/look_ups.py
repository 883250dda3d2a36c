"""The choice of how `gaussian` looks quantiles up: whichever is faster on this processor. The bits are the same.

    gather    sixteen at a time, by the processor's own instruction where LLVM uses it: AVX-512, Intel's AVX2
    scalar    one by one, while the next random words are made: processors without AVX-512, AMD's Genoa

The first process that needs directions measures both in a few milliseconds and writes the result beside the compiled
kernels. It holds for the processor and the kernels that the file names: any other file is measured and written anew.
SEEDBUS_LOOK_UPS=gather or scalar forces one.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, get_args

LookUps = Literal["gather", "scalar"]

VARIABLE: Final = "SEEDBUS_LOOK_UPS"
TURNS: Final = 7

Work = Callable[[], object]


class UnknownLookUps(ValueError):
    """SEEDBUS_LOOK_UPS names no way to look quantiles up."""


def fastest(folder: str | None, version: str, works: Mapping[LookUps, Work]) -> LookUps:
    """Return the way to look quantiles up in this process: the forced one, the measured one, or that of the file.

    Args:
        folder: where the compiled kernels are; None: they are on no disk, and each process measures.
        version: what names the kernels' sources.
        works: each way, and work of less than a millisecond that uses it.

    Raises:
        UnknownLookUps: see `forced`.
    """
    choice = forced()
    if choice is not None:
        return choice
    key = _key(version)
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=4).hexdigest()
    file = Path(folder) / f"look-ups-{digest}.json" if folder is not None else None
    known = _read(file, key) if file is not None else None
    if known is not None:
        return known
    seconds = _measure(works)
    found = min(seconds, key=seconds.__getitem__)
    if file is not None:
        _write(file, key | {"look_ups": found, "seconds": seconds})
    return found


def forced() -> LookUps | None:
    """Return what SEEDBUS_LOOK_UPS says; None if it is not set.

    Raises:
        UnknownLookUps: it says something else than gather or scalar.
    """
    name = os.environ.get(VARIABLE, "")
    for accepted in get_args(LookUps):
        if name == accepted:
            return accepted  # type: ignore[no-any-return]
    if name:
        raise UnknownLookUps(f"{VARIABLE}: found {name!r}; expected {' or '.join(get_args(LookUps))}")
    return None


def _key(version: str) -> dict[str, Any]:
    """Return what a measurement holds for: LLVM's name of the processor and its features, and what was compiled."""
    import numba
    from numba.core.registry import cpu_target

    _, processor, features = cpu_target.target_context.codegen().magic_tuple()
    return {"processor": processor, "features": features, "kernels": version, "numba": numba.__version__}


def _read(file: Path, key: dict[str, Any]) -> LookUps | None:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or any(content.get(name) != value for name, value in key.items()):
        return None
    return next((name for name in get_args(LookUps) if name == content.get("look_ups")), None)


def _write(file: Path, content: dict[str, Any]) -> None:
    """Replace the file at once, so that no other process reads half of it; do nothing where it cannot be written.

    All who may read the kernels in the folder may read it.
    """
    with suppress(OSError), TemporaryDirectory(dir=file.parent) as own:
        whole = Path(own, file.name)
        whole.write_text(json.dumps(content, indent=1), encoding="utf-8")
        whole.replace(file)


def _measure(works: Mapping[LookUps, Work]) -> dict[LookUps, float]:
    """Return the seconds of each work, the best of some turns; the first turn loads the kernel and the table."""
    best: dict[LookUps, float] = {}
    for turn in range(1 + TURNS):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if turn:
                best[name] = min(best.get(name, float("inf")), time.perf_counter() - began)
    return best
