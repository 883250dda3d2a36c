"""The idx format of MNIST and its kin (LeCun et al. 1998): a magic number, big-endian sizes, then the bytes.

The invariant: an array is returned only if the file holds exactly the bytes that its own header promises.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seedbus.models.errors import DataError

_UNSIGNED_BYTES = 0x08


def find(folder: Path, stem: str) -> Path:
    """The file `stem` of the folder, plain or with .gz. Raises `DataError` where there is neither."""
    for path in (folder / stem, folder / f"{stem}.gz"):
        if path.is_file():
            return path
    raise DataError(folder / stem, "no such file", f"an idx file {stem} or {stem}.gz")


def read(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of unsigned bytes with so many dimensions that the file holds; .gz is unpacked. Raises `DataError`."""
    content = _content(path)
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise DataError(path, f"{len(content)} bytes", f"an idx header of {header} bytes")
    magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
    expected_magic = _UNSIGNED_BYTES << 8 | dimensions
    if magic != expected_magic:
        raise DataError(path, f"magic number {magic}", f"{expected_magic} (idx, unsigned bytes, {dimensions}-d)")
    if 0 in shape:
        raise DataError(path, f"sizes {'×'.join(map(str, shape))}", "at least one sample")
    promised, held = math.prod(shape), len(content) - header
    if held != promised:
        raise DataError(path, f"{held} data bytes", f"{promised} for sizes {'×'.join(map(str, shape))}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def write(path: Path, array: NDArray[np.uint8]) -> None:
    """Write the array as an idx file that appears whole or not at all, whoever else is writing it."""
    header = struct.pack(f">{1 + array.ndim}I", _UNSIGNED_BYTES << 8 | array.ndim, *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(header + array.tobytes())
    partial.replace(path)


def _content(path: Path) -> bytes:
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as file:
            return file.read()
    except EOFError:
        raise DataError(path, "a gzip stream that ends early", "a complete download") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(path, f"damaged gzip data ({error})", "the file as published") from None
    except OSError as error:
        raise DataError(path, f"a file that cannot be read ({error.strerror})", "a readable idx file") from error
