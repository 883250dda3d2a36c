"""The idx format of MNIST and its kin (LeCun et al. 1998): a magic number, big-endian sizes, then the bytes.

Files are mapped into memory, so that all processes of a machine share one copy. A .gz file is unpacked into the cache
once and mapped from there. If the cache cannot be written or the file cannot be mapped, the file is read into memory.

The invariants: an array is returned only if the file contains exactly the bytes that its header declares; and an
unpacked copy is used only while size and modification time of its .gz file are unchanged.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import mmap
import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from seedbus.models.data.untrusted import Limited, most_unpacked
from seedbus.models.errors import DataError

_UNSIGNED_BYTES = 0x08
_CHUNK = 2**20


def cache_folder() -> Path:
    """Return the folder of fetched and unpacked data. Raises `RuntimeError` if the user has no home directory."""
    return Path(os.environ.get("SEEDBUS_CACHE") or Path.home() / ".cache" / "seedbus")


def find(folder: Path, stem: str) -> Path:
    """Return the path of `stem` in the folder, plain or with .gz. Raises `DataError` if neither exists."""
    for path in (folder / stem, folder / f"{stem}.gz"):
        if path.is_file():
            return path
    raise DataError(folder / stem, "no such file", f"an idx file {stem} or {stem}.gz")


def read(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of unsigned bytes in an idx file, read-only.

    It is mapped into memory where possible: overwriting the file while it is in use changes the array.

    Args:
        path: the file; a .gz file is unpacked first.
        dimensions: number of dimensions that the array must have.

    Raises:
        DataError: the file is damaged, cannot be read, or has another type, number of dimensions or size.
    """
    content = _content(path, dimensions)
    header = _header_bytes(dimensions)
    shape = _shape(path, content[:header].tobytes(), dimensions)
    declared = math.prod(shape)
    actual = len(content) - header
    if actual != declared:
        raise DataError(path, f"{actual} data bytes", _declared(shape))
    return content[header:].reshape(shape)


def _header_bytes(dimensions: int) -> int:
    return 4 + 4 * dimensions


def _shape(path: Path, start: bytes, dimensions: int) -> list[int]:
    """Return the sizes that a file's first bytes declare. Raises `DataError`."""
    header = _header_bytes(dimensions)
    if len(start) < header:
        raise DataError(path, f"{len(start)} bytes", f"an idx header of {header} bytes")
    magic, *shape = struct.unpack(f">{1 + dimensions}I", start)
    expected_magic = _UNSIGNED_BYTES << 8 | dimensions
    if magic != expected_magic:
        raise DataError(path, f"magic number {magic}", f"{expected_magic} (idx, unsigned bytes, {dimensions}-d)")
    if 0 in shape:
        raise DataError(path, f"sizes {'×'.join(map(str, shape))}", "at least one sample")
    return shape


def _declared(shape: list[int]) -> str:
    return f"{math.prod(shape)} for sizes {'×'.join(map(str, shape))}"


def write(path: Path, array: NDArray[np.uint8]) -> None:
    """Write an array as an idx file, atomically, even if other processes write the same file."""
    header = struct.pack(f">{1 + array.ndim}I", _UNSIGNED_BYTES << 8 | array.ndim, *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        file.write(header)
        file.write(np.ascontiguousarray(array).data)
        file.flush()
        os.fsync(file.fileno())  # otherwise a power cut could leave the name without the bytes
    partial.replace(path)


def _content(path: Path, dimensions: int) -> NDArray[np.uint8]:
    is_packed = path.suffix == ".gz"
    try:
        with suppress(OSError, RuntimeError):  # an error of the file itself is raised again by reading it
            return _mapped(_unpacked(path, dimensions) if is_packed else path)
        with _opened(path, dimensions) if is_packed else path.open("rb") as file:
            return np.frombuffer(file.read(), dtype=np.uint8)
    except EOFError:
        raise DataError(path, "a gzip stream that ends early", "a complete download") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(path, f"damaged gzip data ({error})", "the file as published") from None
    except OSError as error:
        raise DataError(path, f"a file that cannot be read ({error.strerror})", "a readable idx file") from error


def _mapped(path: Path) -> NDArray[np.uint8]:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return np.empty(0, dtype=np.uint8)  # an empty file cannot be mapped
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.uint8)


def _unpacked(path: Path, dimensions: int) -> Path:
    """Return the unpacked copy of a .gz file in the cache; unpack it if no process has done so before."""
    source = os.path.realpath(path)
    status = path.stat()
    folder = cache_folder() / "unpacked"
    prefix = _digest(source)
    state = _digest(f"{source}\0{status.st_size}\0{status.st_mtime_ns}")
    target = folder / f"{prefix}-{state}"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _unpack(path, target, dimensions)
        for earlier in set(folder.glob(f"{prefix}-*")) - {target}:
            earlier.unlink(missing_ok=True)
    return target


@contextmanager
def _opened(path: Path, dimensions: int) -> Iterator[BinaryIO]:
    """Open a .gz file, of which no more is read than its header declares. Raises `DataError` for a wrong header."""
    header, most = _header_bytes(dimensions), most_unpacked(path)
    with gzip.open(path) as packed:
        shape = _shape(path, packed.read(header), dimensions)
        declared = math.prod(shape)
        if declared > most:
            found = f"a header that declares {_declared(shape)}"
            raise DataError(path, found, f"at most {most} data bytes in a .gz file of its size")
        packed.seek(0)
        error = DataError(path, "more data bytes", _declared(shape))
        yield io.BufferedReader(Limited(packed, header + declared, error))


def _unpack(path: Path, target: Path, dimensions: int) -> None:
    """Write the unpacked file atomically, even if other processes write the same file."""
    with TemporaryDirectory(dir=target.parent, prefix=".") as own:
        partial = Path(own) / target.name
        with _opened(path, dimensions) as packed, partial.open("wb") as file:
            shutil.copyfileobj(packed, file, _CHUNK)
            file.flush()
            os.fsync(file.fileno())  # otherwise a power cut could leave the name without the bytes
        if not target.exists():  # otherwise another process was faster, and all processes share its file
            partial.replace(target)


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]
