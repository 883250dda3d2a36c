"""CURVE keys: the files of pairs, the table of public keys that a server admits, and the thread that asks the table.

CurveZMQ (RFC 26) encrypts a connection and proves that each end has its key. ZAP (RFC 27) asks the server about each
client's key that has been proved. All cryptography is libsodium's, used by ZeroMQ.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import zmq
from zmq.auth.thread import ThreadAuthenticator

from seedbus.bus.clock import wall_seconds
from seedbus.bus.errors import BadKey
from seedbus.bus.files import Untrusted, read_trusted
from seedbus.bus.spans import Span, spans_in
from seedbus.bus.text import printable
from seedbus.bus.transport import MOST_CLIENTS, Rights

DOMAIN = "seedbus"
TABLE = "authorised.toml"
SECRET, PUBLIC = ".secret", ".public"
KEY = re.compile(r"[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40}", re.ASCII)  # Z85 (RFC 32) of 32 bytes
NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,63}", re.ASCII)
_NAMED = "a name of letters, digits, dots, dashes and underscores, 64 at most"
_ENTRY = {"name", "public", "clients", "evaluator"}
_LIMIT = 2**22  # bytes of the largest file that is read
SETTLED_S = 0.5
GRACE_S = 60.0
STAYS = f"the last table that could be read stays in force for {GRACE_S:g} s at most"
NOBODY = "so no key is let in any more"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A public and a secret key.

    Attributes:
        public: 40 characters of Z85.
        secret: the same.
    """

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"KeyPair({self.public.decode()}, …)"  # never the secret key, which could end up in a log

    @classmethod
    def new(cls) -> Self:
        """Return a new pair; its keys do not begin with a dash, so they are not mistaken for options of a command."""
        while True:
            public, secret = zmq.curve_keypair()
            if not (public.startswith(b"-") or secret.startswith(b"-")):
                return cls(public, secret)

    @classmethod
    def of(cls, secret: bytes) -> Self:
        """Return the pair of a secret key."""
        return cls(zmq.curve_public(secret), secret)

    def save(self, folder: Path, name: str) -> None:
        """Write NAME.secret, which nobody else can read, and NAME.public.

        Raises:
            BadKey: the name is not allowed, NAME.secret exists already, or the files cannot be written.
        """
        check_name(name)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_new(folder / (name + SECRET), self.secret, 0o600)
            with suppress(FileNotFoundError):
                (folder / (name + PUBLIC)).unlink()  # it belongs to a secret key that was deleted
            _write_new(folder / (name + PUBLIC), self.public, 0o644)
        except FileExistsError:
            raise BadKey(str(folder / (name + SECRET)), "it is there already", "a name that is free") from None
        except OSError as error:
            raise BadKey(str(folder / name), _why(error), "a folder that can be written") from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a secret key's file.

        Raises:
            BadKey: it cannot be read, holds no key, or other users could read or replace it.
        """
        if path.suffix == PUBLIC:
            raise BadKey(str(path), "it is the file of a public key", f"that of a secret key, like NAME{SECRET}")
        text = _trusted(path, "the file of a secret key, which `seedbus keys new` makes", is_secret=True)
        if not KEY.fullmatch(text.strip()):
            raise BadKey(str(path), "it holds no key", "the 40 characters of a secret key")
        return cls.of(text.strip().encode())


@dataclass(frozen=True, slots=True)
class Identity:
    """What a process needs to connect to a server with keys.

    Attributes:
        own: its own pair.
        server_key: the public key that the server must have.
        server_file: the file that this key was read from; "": it was given as text.
    """

    own: KeyPair
    server_key: bytes
    server_file: str = ""

    def renewed(self) -> Self:
        """Return the identity with the key that the server's file holds now; as it is, if that cannot be read."""
        with suppress(BadKey):
            return replace(self, server_key=public_key(self.server_file)) if self.server_file else self
        return self

    def packed(self) -> dict[str, str]:
        """Return the identity as text, to be sent to a child process over a pipe."""
        return {"server_key": self.server_key.decode(), "secret": self.own.secret.decode()}

    @classmethod
    def unpacked(cls, packed: dict[str, str]) -> Self:
        """Return the identity that `packed` has made text of."""
        return cls(KeyPair.of(packed["secret"].encode()), packed["server_key"].encode())


def public_key(key_or_path: str) -> bytes:
    """Return a public key that is given as text or as the path of its file.

    Raises:
        BadKey: the file cannot be read, holds no key, or is a secret key's, which would then be shown as public.
    """
    path = Path(key_or_path)
    is_path = path.suffix in (SECRET, PUBLIC) or path.is_file()  # a path of 40 characters looks like a key
    if KEY.fullmatch(key_or_path) and not is_path:
        return key_or_path.encode()
    if path.suffix == SECRET:
        raise BadKey(key_or_path, "it is the file of a secret key", f"that of a public key, like NAME{PUBLIC}")
    text = _text(path, "a public key of 40 characters, or the file of one", lambda: _some(path))
    if not KEY.fullmatch(text.strip()):
        raise BadKey(key_or_path, "it holds no key", "the 40 characters of a public key")
    return text.strip().encode()


@dataclass(frozen=True, slots=True)
class Entry:
    """A public key that a server admits.

    Attributes:
        name: the operator's name for it.
        public: the key, 40 characters of Z85.
        spans: the clients that its process may host; None: any; empty: none, only the evaluator.
        evaluator: its process is trusted to host the evaluator, and to tell x₀.
    """

    name: str
    public: bytes
    spans: tuple[Span, ...] | None = None
    evaluator: bool = False

    @property
    def rights(self) -> Rights:
        """What a process with this key may ask for."""
        return Rights(self.spans, self.evaluator)

    def text(self) -> str:
        """Return the entry in TOML; names and keys have no characters that would need escaping."""
        evaluator = "true" if self.evaluator else "false"
        return (
            f'[[key]]\nname = "{self.name}"\npublic = "{self.public.decode()}"\n'
            f'clients = "{self.clients}"\nevaluator = {evaluator}\n'
        )

    @property
    def clients(self) -> str:
        """The clients as text: `all`, `none`, or ranges like 0-24,40."""
        if self.spans is None:
            return "all"
        return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in self.spans) or "none"


class Table:
    """The keys that a server admits; their file is read again whenever it has changed. Several threads may use a table.

    Editors remove a file for a moment, or write it in parts. So a key that the file has no more goes once the file has
    stayed as it is for `SETTLED_S`, and the last table that could be read stays in force for `GRACE_S` after one that
    cannot. Then no key is admitted, or a server whose table was deleted would keep keys that are to go for ever.

    Attributes:
        path: the file.
        complaint: why the file cannot be read, and what that means for its keys; empty if it can.
    """

    def __init__(self, path: Path) -> None:
        """Read the table; there may be none yet. Raises `BadKey` if it cannot be used."""
        self.path = path
        self.complaint = ""
        self._stamp = self._look()
        self._entries = _by_key(path)
        self._newest: dict[str, Entry] | None = self._entries  # what the file says; None: nothing that can be read
        self._since = self._readable = wall_seconds()  # the file is as it is since then; it was last readable then
        self._lock = threading.Lock()

    def admits(self, key: str) -> bool:
        """Return whether a process with this key may connect now."""
        return self.rights(key) is not None

    def rights(self, key: str) -> Rights | None:
        """Return what a process with this key may ask for; None: nothing, or nothing any more."""
        self._reload()
        entry = self._entries.get(key)
        return None if entry is None else entry.rights

    def name(self, key: str) -> str:
        """Return the operator's name for a key, or the key itself if it has none."""
        entry = self._entries.get(key)
        return f"key {key}" if entry is None else entry.name

    def _reload(self) -> None:
        """Read the file again if it has changed, so that revoking a key needs no restart."""
        with self._lock:
            now, stamp = wall_seconds(), self._look()
            if stamp != self._stamp:
                self._stamp, self._since = stamp, now
                self._read()
            if self._newest is None:
                is_over = now - self._readable >= GRACE_S
                self._entries = {} if is_over else self._entries
                self.complaint = f"{self._why}; {NOBODY if is_over else STAYS}"
                return
            self._readable, self.complaint = now, ""
            is_settled = now - self._since >= SETTLED_S
            self._entries = self._newest if is_settled else self._entries | self._newest

    def _look(self) -> tuple[int, ...]:
        """Return what changes with the file, its owner and its mode, and those of its folder."""
        try:
            status, folder = self.path.stat(), self.path.parent.stat()
        except FileNotFoundError:
            return (-1,)
        except OSError as error:
            return (-2, error.errno or 0)
        return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, folder.st_mode, folder.st_uid

    def _read(self) -> None:
        try:
            if self._entries and not os.path.lexists(self.path):
                raise BadKey(str(self.path), "it is not there any more", "the table, or one without entries")
            self._newest = _by_key(self.path)
        except (BadKey, OSError, ValueError) as error:
            self._newest, self._why = None, printable(str(error), 600)


def _by_key(path: Path) -> dict[str, Entry]:
    return {entry.public.decode(): entry for entry in read_table(path)}


def read_table(path: Path) -> list[Entry]:
    """Return the entries of a table; none if there is no such file.

    Raises:
        BadKey: the file cannot be read, is not a table of keys, or other users could write or replace it.
    """
    if not os.path.lexists(path):
        return []
    text = _trusted(path, "a table of keys, which `seedbus keys authorise` writes")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for a number of very many digits
        raise BadKey(str(path), printable(str(error)), "a table of keys in TOML") from None
    entries = table.pop("key", [])
    if table or not isinstance(entries, list):
        raise BadKey(str(path), "it has other parts than [[key]]", "entries [[key]] and nothing else")
    table_entries = [_entry(path, number, entry) for number, entry in enumerate(entries)]
    for field in ("name", "public"):
        values = [getattr(entry, field) for entry in table_entries]
        if len(set(values)) < len(values):
            raise BadKey(str(path), f"two of its entries have the same {field}", "each key and each name once")
    return table_entries


def write_table(path: Path, entries: Iterable[Entry]) -> None:
    """Write a table, and replace the present one atomically. Raises `BadKey`."""
    text = "# Keys that a server lets in; it reads changes by itself.\n\n" + "\n".join(each.text() for each in entries)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            temporary.unlink()
        _write_new(temporary, text.encode(), 0o600)
        temporary.replace(path)
    except OSError as error:
        raise BadKey(str(path), _why(error), "a file that can be written") from None


def check_name(name: str) -> None:
    """Check that a key may have this name. Raises `BadKey`."""
    if not NAME.fullmatch(name):
        raise BadKey(printable(name), "it is not allowed as the name of a key", _NAMED)


def clients_of(text: str) -> tuple[Span, ...] | None:
    """Read the clients of an entry: `all`, which is None, `none`, or ranges like 0-24,40. Raises `ValueError`."""
    if text in ("all", "none"):
        return None if text == "all" else ()
    spans = spans_in(text, MOST_CLIENTS)
    if spans is None:
        raise ValueError(text)
    return spans


class Authenticator:
    """Answers ZeroMQ's requests (ZAP) about keys that were proved, on a thread of its own.

    Args:
        context: the context of ZeroMQ whose sockets ask.
        admits: returns whether a process with a key may connect. If it raises, the key is rejected.

    Attributes:
        rejected: keys that were rejected, 100 at most; the caller removes those that it has handled.
    """

    def __init__(self, context: zmq.Context[Any], admits: Callable[[str], bool]) -> None:
        self._admits = admits
        self.rejected: list[str] = []
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(domain=DOMAIN, credentials_provider=self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether a key is admitted. pyzmq calls this on its thread, which an exception would end."""
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
        """Whether the thread is running."""
        return self._authenticator.is_alive()

    def close(self) -> None:
        """Stop the thread."""
        self._authenticator.stop()


def _entry(path: Path, number: int, table: object) -> Entry:
    where = f"{path}: key {number + 1}"
    if not isinstance(table, dict) or not {"name", "public"} <= set(table) <= _ENTRY:
        raise BadKey(where, "its fields are others", f"the fields {', '.join(sorted(_ENTRY))}")
    name = table["name"]
    public = table["public"]
    clients = table.get("clients", "all")
    evaluator = table.get("evaluator", False)
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise BadKey(where, f"name is {printable(repr(name))}", _NAMED)
    if not (isinstance(public, str) and KEY.fullmatch(public)):
        raise BadKey(where, f"public is {printable(repr(public))}", "the 40 characters of a public key")
    if not isinstance(evaluator, bool):
        raise BadKey(where, f"evaluator is {printable(repr(evaluator))}", "true or false")
    try:
        spans = clients_of(clients if isinstance(clients, str) else repr(clients))
    except ValueError:
        raise BadKey(
            where, f"clients is {printable(repr(clients))}", '"all", "none", or clients like "0-24,40"'
        ) from None
    return Entry(name, public.encode(), spans, evaluator)


def _trusted(path: Path, expected: str, *, is_secret: bool = False) -> str:
    """Return the text of a file that only this user and root can change. Raises `BadKey`."""
    return _text(path, expected, lambda: read_trusted(path, _LIMIT, is_secret=is_secret))


def _some(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_LIMIT + 1)
    if len(content) > _LIMIT:
        raise OSError(errno.EFBIG, f"it has more than {_LIMIT:,} bytes")
    return content


def _text(path: Path, expected: str, read: Callable[[], bytes]) -> str:
    """Return the text of a small file. Raises `BadKey`."""
    try:
        return read().decode("utf-8")
    except Untrusted as error:
        raise BadKey(printable(str(path)), printable(error.found), error.remedy) from None
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        why = _why(error) if isinstance(error, OSError) else "it is no text"
        raise BadKey(printable(str(path)), why, expected) from None


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that must not exist yet; the file of a key gets a line end. Raises `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask is
        file.write(content + b"\n" if path.suffix in (SECRET, PUBLIC) else content)


def _why(error: OSError) -> str:
    return (error.strerror or "it cannot be used").lower()
