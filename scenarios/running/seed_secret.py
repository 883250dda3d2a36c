"""The secret of `seed_shift`: a file that the user of each process with clients names, never a scenario.

A server chooses the scenario, so a scenario says only that seeds are shifted. The key that shifts them is stretched
from the file's content by scrypt (RFC 7914). Whoever sees the messages of a run can compare them with guesses, and pays
for each guess: a third of a second of one core (AMD EPYC), and 32 MiB. All clients of a run need the same key, so its
salt cannot tell clients apart. It binds the key to the run's seed, task and dimension: a server that has clients
compute something whose gradient it knows, such as a quadratic, learns no directions of other runs.
"""

from __future__ import annotations

import os
from functools import lru_cache
from hashlib import scrypt
from pathlib import Path

from seedbus.bus.files import Untrusted, WrongFileType, read_trusted
from seedbus.models.errors import NotAllowed
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.sentences import quoted

VARIABLE = "SEEDBUS_SEED_SECRET"
LENGTHS = 16, 64  # bytes that the file may have: at least, and at most
_HOW = f"name the file of the clients' secret in {VARIABLE}, or to seedbus client by --seed-secret FILE"


def is_given() -> bool:
    """Return whether this process's user has named a secret."""
    return bool(os.environ.get(VARIABLE))


def read_secret() -> bytes:
    """Return the content of the file that this process's user has named.

    Raises:
        ScenarioError: none is named, or it cannot be used.
    """
    if not is_given():
        raise ScenarioError("seed_shift", [f"this process has no secret to shift seeds by; {_HOW}"])
    named = os.environ[VARIABLE]
    least, most = LENGTHS
    try:
        secret = read_trusted(Path(named), 2**12, is_secret=True)
    except Untrusted as error:
        raise ScenarioError("seed_shift", [f"{quoted(named)}: {error.found}; expected {error.remedy}"]) from None
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, and links in a circle
        why = error.what if isinstance(error, WrongFileType) else getattr(error, "strerror", None) or str(error)
        raise ScenarioError("seed_shift", [f"{quoted(named)} cannot be read here ({why}); {_HOW}"]) from None
    if not least <= len(secret) <= most:
        found = f"{quoted(named)} has {len(secret)} bytes"
        raise ScenarioError("seed_shift", [f"{found}; a secret of {least} to {most} bytes is accepted"])
    return secret


def seed_key(seed: int, task: str, dimension: int) -> bytes:
    """Return the key with which this process's clients shift the seeds of a run, 32 bytes.

    Args:
        seed: the scenario's.
        task: the name of its task.
        dimension: d.

    Raises:
        ScenarioError: see `read_secret`.
    """
    return _stretched(read_secret(), f"seeds of {task}, d = {dimension}, seed {seed}".encode())


def fingerprint() -> str:
    """Return what tells a run with this secret from a run with another one, without giving guesses of it for nothing.

    Raises:
        ScenarioError: see `read_secret`.
    """
    return _stretched(read_secret(), b"the name of a run in a study").hex()


def refuse_unshifted() -> None:
    """Raise `NotAllowed` if this process's user has named a secret, so a server may not have reports without it."""
    if is_given():
        raise NotAllowed("the scenario's", "seed_shift: false", f"seed_shift: true, as a secret is given ({VARIABLE})")


@lru_cache(maxsize=16)
def _stretched(secret: bytes, salt: bytes) -> bytes:
    """Return a key of 32 bytes; these parameters of scrypt are OWASP's, for 32 MiB."""
    return scrypt(secret, salt=salt, n=2**15, r=8, p=3, maxmem=2**26, dklen=32)
