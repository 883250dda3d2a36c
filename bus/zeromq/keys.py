"""Who may come in by key: pairs of CURVE keys as files, the table of those that a server lets in, and the thread that
asks it.

CurveZMQ (RFC 26) encrypts a connection and proves both ends' keys; ZAP (RFC 27) asks this side about each key that has
been proved. All cryptography is libsodium's, by way of ZeroMQ.
"""

from __future__ import annotations

import os
import re
import threading
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import zmq
from zmq.auth.thread import ThreadAuthenticator

from seedbus.bus.errors import BadKey
from seedbus.bus.spans import Span, merged
from seedbus.bus.text import printable
from seedbus.bus.transport import Rights

DOMAIN = "seedbus"
TABLE = "authorised.toml"
SECRET, PUBLIC = ".secret", ".public"
KEY = re.compile(r"[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40}", re.ASCII)  # Z85 (RFC 32) of 32 bytes
NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,63}", re.ASCII)
_NAMED = "a name of letters, digits, dots, dashes and underscores, 64 at most"
_ENTRY = {"name", "public", "clients", "evaluator"}
_LIMIT = 2**22  # bytes of a table that is read
MOST_CLIENTS = 2**24


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A public and a secret key, 40 characters of Z85 each."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"KeyPair({self.public.decode()}, …)"  # a secret has no place in a log

    @classmethod
    def new(cls) -> Self:
        """A pair whose keys do not begin like an option of a command."""
        while True:
            public, secret = zmq.curve_keypair()
            if not (public.startswith(b"-") or secret.startswith(b"-")):
                return cls(public, secret)

    @classmethod
    def of(cls, secret: bytes) -> Self:
        return cls(zmq.curve_public(secret), secret)

    def save(self, folder: Path, name: str) -> None:
        """Write NAME.secret, which nobody else can read, and NAME.public. Raises `BadKey`, also where one exists."""
        check_name(name)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_new(folder / (name + SECRET), self.secret, 0o600)
            with suppress(FileNotFoundError):
                (folder / (name + PUBLIC)).unlink()  # of a secret that is no more
            _write_new(folder / (name + PUBLIC), self.public, 0o644)
        except FileExistsError:
            raise BadKey(str(folder / (name + SECRET)), "it is there already", "a name that is free") from None
        except OSError as error:
            raise BadKey(str(folder / name), _why(error), "a folder that can be written") from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a secret key's file. Raises `BadKey`: also where others could read it."""
        text, mode = _read(path, "the file of a secret key, which `seedbus keys new` makes")
        if mode & 0o077:
            raise BadKey(str(path), f"others may read it (mode {mode & 0o777:o})", f"mode 600: `chmod 600 {path}`")
        if not KEY.fullmatch(text.strip()):
            raise BadKey(str(path), "it holds no key", "the 40 characters of a secret key")
        return cls.of(text.strip().encode())


@dataclass(frozen=True, slots=True)
class Identity:
    """What a process shows to a server: its own pair, and the key that the server must have."""

    own: KeyPair
    server_key: bytes

    def packed(self) -> dict[str, str]:
        """For a process of one's own, over a pipe."""
        return {"server_key": self.server_key.decode(), "secret": self.own.secret.decode()}

    @classmethod
    def unpacked(cls, said: dict[str, str]) -> Self:
        return cls(KeyPair.of(said["secret"].encode()), said["server_key"].encode())


def public_key(said: str) -> bytes:
    """A public key, or what the file of one holds. Raises `BadKey`."""
    if KEY.fullmatch(said):
        return said.encode()
    text, _ = _read(Path(said), "a public key of 40 characters, or the file of one")
    if not KEY.fullmatch(text.strip()):
        raise BadKey(said, "it holds no key", "the 40 characters of a public key")
    return text.strip().encode()


@dataclass(frozen=True, slots=True)
class Entry:
    """A key that is let in. spans: the clients that its process may host; None: any. evaluator: whether it is trusted
    to host the evaluator, and to say what x₀ is."""

    name: str
    public: bytes
    spans: tuple[Span, ...] | None = None
    evaluator: bool = False

    @property
    def rights(self) -> Rights:
        return Rights(self.spans, self.evaluator)

    def text(self) -> str:
        """As the table has it; neither names nor keys have a character that TOML would read otherwise."""
        evaluator = "true" if self.evaluator else "false"
        return (
            f'[[key]]\nname = "{self.name}"\npublic = "{self.public.decode()}"\n'
            f'clients = "{self.clients}"\nevaluator = {evaluator}\n'
        )

    @property
    def clients(self) -> str:
        """all, or 0-24,40"""
        if self.spans is None:
            return "all"
        return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in self.spans)


class Table:
    """The keys that a server lets in, as the file says just now. Several threads may ask.

    A file that cannot be read lets nobody in, and `complaint` says why; those who are in stay until it can be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.complaint = ""
        self._stamp: tuple[int, ...] = ()
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def admits(self, key: str) -> bool:
        """Whether the owner of a key is let in just now."""
        return self.rights(key) is not None and not self.complaint

    def rights(self, key: str) -> Rights | None:
        """What the owner of a key may ask for; None: nothing, or nothing any more."""
        self._look()
        entry = self._entries.get(key)
        return None if entry is None else entry.rights

    def name(self, key: str) -> str:
        entry = self._entries.get(key)
        return f"key {key}" if entry is None else entry.name

    def _look(self) -> None:
        """Read the file again, if it is another one. Revoking needs no restart."""
        with self._lock:
            stamp: tuple[int, ...]
            try:
                found = self.path.stat()
                stamp = found.st_mtime_ns, found.st_size, found.st_ino
            except FileNotFoundError:
                stamp = (-1,)
            except OSError as error:
                stamp = (-2, error.errno or 0)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            try:
                self._entries = {entry.public.decode(): entry for entry in read_table(self.path)}
                self.complaint = ""
            except (BadKey, OSError, ValueError) as error:
                self.complaint = printable(str(error), 600)


def read_table(path: Path) -> list[Entry]:
    """The entries of a table; none, if there is no such file. Raises `BadKey`."""
    if not path.exists():
        return []
    text, mode = _read(path, "a table of keys, which `seedbus keys authorise` writes")
    if mode & 0o022:
        raise BadKey(str(path), f"others may write it (mode {mode & 0o777:o})", f"`chmod 600 {path}`")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of a number with very many digits, too
        raise BadKey(str(path), printable(str(error)), "a table of keys in TOML") from None
    entries = table.pop("key", [])
    if table or not isinstance(entries, list):
        raise BadKey(str(path), "it has other parts than [[key]]", "entries [[key]] and nothing else")
    found = [_entry(path, number, entry) for number, entry in enumerate(entries)]
    for what in ("name", "public"):
        values = [getattr(entry, what) for entry in found]
        if len(set(values)) < len(values):
            raise BadKey(str(path), f"two of its entries have the same {what}", "each key and each name once")
    return found


def write_table(path: Path, entries: Iterable[Entry]) -> None:
    """Put a table in the place of the one that is there, whole or not at all. Raises `BadKey`."""
    text = "# Keys that a server lets in; it reads changes by itself.\n\n" + "\n".join(each.text() for each in entries)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            beside.unlink()
        _write_new(beside, text.encode(), 0o600)
        beside.replace(path)
    except OSError as error:
        raise BadKey(str(path), _why(error), "a file that can be written") from None


def check_name(name: str) -> None:
    """Raises `BadKey`."""
    if not NAME.fullmatch(name):
        raise BadKey(printable(name), "it is no name of a key", _NAMED)


def clients_of(text: str) -> tuple[Span, ...] | None:
    """`all`, or clients like 0-24,40. Raises `ValueError`."""
    if text == "all":
        return None
    spans = []
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part, re.ASCII)
        if not found or not int(found[1]) <= int(found[2] or found[1]) < MOST_CLIENTS:
            raise ValueError(part)
        spans.append((int(found[1]), int(found[2] or found[1])))
    return merged(spans)


class Authenticator:
    """Answers ZeroMQ's question about each key that was proved, on a thread of its own.

    admits: whether the owner of a key is let in. A question that fails lets nobody in and ends nothing. turned_away:
    keys that were not let in, until somebody takes them.
    """

    def __init__(self, context: zmq.Context[Any], admits: Callable[[str], bool]) -> None:
        self._admits = admits
        self.rejected: list[str] = []
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(domain=DOMAIN, credentials_provider=self)

    def callback(self, domain: str, key: bytes) -> bool:
        """What pyzmq calls; an exception here would end its thread for good."""
        try:
            name = key.decode("ascii")
            if self._admits(name):
                return True
            if len(self.rejected) < 100:
                self.rejected.append(name)
        except Exception:
            return False
        return False

    @property
    def is_alive(self) -> bool:
        return self._authenticator.is_alive()

    def close(self) -> None:
        self._authenticator.stop()


def _entry(path: Path, number: int, said: object) -> Entry:
    where = f"{path}: key {number + 1}"
    if not isinstance(said, dict) or not {"name", "public"} <= set(said) <= _ENTRY:
        raise BadKey(where, "its fields are others", f"the fields {', '.join(sorted(_ENTRY))}")
    name, public = said["name"], said["public"]
    clients, evaluator = said.get("clients", "all"), said.get("evaluator", False)
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise BadKey(where, f"name is {printable(repr(name))}", _NAMED)
    if not (isinstance(public, str) and KEY.fullmatch(public)):
        raise BadKey(where, f"public is {printable(repr(public))}", "the 40 characters of a public key")
    if not isinstance(evaluator, bool):
        raise BadKey(where, f"evaluator is {printable(repr(evaluator))}", "true or false")
    try:
        spans = clients_of(clients if isinstance(clients, str) else repr(clients))
    except ValueError:
        raise BadKey(where, f"clients is {printable(repr(clients))}", '"all", or clients like "0-24,40"') from None
    return Entry(name, public.encode(), spans, evaluator)


def _read(path: Path, expected: str) -> tuple[str, int]:
    """What a small file holds, and its mode. Raises `BadKey`."""
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(_LIMIT + 1)
        if len(content) > _LIMIT:
            raise BadKey(printable(str(path)), f"it has more than {_LIMIT:,} bytes", expected)
        return content.decode("utf-8"), mode
    except (OSError, ValueError) as error:
        why = _why(error) if isinstance(error, OSError) else "it is no text"
        raise BadKey(printable(str(path)), why, expected) from None


def _write_new(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask is
        file.write(content + b"\n" if path.suffix in (SECRET, PUBLIC) else content)


def _why(error: OSError) -> str:
    return (error.strerror or "it cannot be used").lower()
