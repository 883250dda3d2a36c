"""Reading files that somebody else may have made, without taking the memory that they only claim to need.

A file of 2 GB of zeros takes no place on a disk, and a header of a few bytes can announce any size. So a size is
believed after a look: text ends at the first byte 0, which no text has, and a header's size is compared with a bound.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

LARGEST_JSON = 2**24
"""Bytes of a configuration, an index or a header, which is parsed as a whole: parsed, each takes up to 30."""
LARGEST_TEXT = 2**30
"""Bytes of a text of data: millions of rows."""
LARGEST_IMAGE = 2**28
"""Bytes of an image's file."""
_CHUNK = 2**20


def text_chunks(file: BinaryIO, most: int) -> Iterator[bytes]:
    """Yield the bytes of a text from where the file stands, in chunks of a megabyte.

    Raises:
        OSError: it is no file, has more than `most` bytes, cannot be read, or holds a byte 0, so that it is no text.
    """
    name, status = str(file.name), os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "neither a file nor a link to one", name)
    if status.st_size > most:
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes; at most {most:,} are read", name)
    begin = file.tell()
    while chunk := file.read(_CHUNK):
        if (zero := chunk.find(0)) >= 0:
            found = f"it has {status.st_size:,} bytes, and the one at {begin + zero:,} is 0, as in no text"
            raise OSError(errno.EINVAL, found, name)
        begin += len(chunk)
        if begin > most:  # it grows
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", name)
        yield chunk


def read_text(file: BinaryIO, most: int) -> bytes:
    """Return the bytes of a text. Raises `OSError` as `text_chunks` does, having taken memory for text alone."""
    return b"".join(text_chunks(file, most))


def announced(file: BinaryIO, size: int, most: int, what: str) -> bytes:
    """Return the next bytes of a file, of which a header says how many they are.

    Args:
        file: stands before them.
        size: what the header says.
        most: how many are accepted.
        what: what they are, for the sentence.

    Raises:
        OSError: they are more than is accepted, or more than the file has.
    """
    there = os.fstat(file.fileno()).st_size - file.tell()
    if not 0 <= size <= min(most, there):
        found = f"it announces {what} of {size:,} bytes, of {there:,} that are there; at most {most:,} are read"
        raise OSError(errno.EFBIG, found, str(file.name))
    return file.read(size)


def check_footer(file: BinaryIO) -> None:
    """Look at how long the footer of a Parquet file is, which is parsed as a whole. Leaves the file at its begin.

    Raises:
        OSError: it is longer than that of a file with tens of thousands of columns.
    """
    end = file.seek(0, os.SEEK_END)
    if end >= 8:
        file.seek(end - 8)
        size, mark = int.from_bytes(file.read(4), "little"), file.read(4)
        if mark in (b"PAR1", b"PARE") and size > LARGEST_JSON:
            found = f"it announces a footer of {size:,} bytes; at most {LARGEST_JSON:,} are read"
            raise OSError(errno.EFBIG, found, str(file.name))
    file.seek(0)
