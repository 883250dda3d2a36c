"""IDX files are mapped to be shared by processes; .gz files are unpacked once; where either fails, files are read."""

from __future__ import annotations

import errno
import gzip
import mmap
import multiprocessing
import os
import shutil
import struct
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Never

import numpy as np
import pytest

from seedbus.models import DataError
from seedbus.models.data import idx
from seedbus.models.tasks.digits import Digits

PROCESSES = 3


@pytest.fixture(autouse=True)
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the folder of unpacked files in a cache that does not exist yet."""
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "unpacked"


def pixels(seed: int = 0) -> Any:
    return np.random.Generator(np.random.Philox(seed)).integers(0, 256, (5, 4, 3), dtype=np.uint8)


def packed_file(path: Path, array: Any) -> Path:
    """Write an array as a gzip file without compression, so that arrays of one shape give files of one size."""
    plain = path.with_suffix("")
    idx.write(plain, array)
    path.write_bytes(gzip.compress(plain.read_bytes(), compresslevel=0))
    plain.unlink()
    return path


def is_mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, mmap.mmap):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array is not None


def fails(error: Exception) -> Any:
    def call(*_: Any, **__: Any) -> Never:
        raise error

    return call


def test_a_plain_file_is_mapped_and_cannot_be_written_to(tmp_path: Path, unpacked: Path) -> None:
    idx.write(tmp_path / "images", pixels())
    read = idx.read(tmp_path / "images", 3)
    assert np.array_equal(read, pixels()) and read.dtype == np.uint8 and is_mapped(read)
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 0
    assert not unpacked.exists(), "a plain file needs no cache"


def test_a_file_that_is_replaced_leaves_the_arrays_in_use_as_they_are(tmp_path: Path) -> None:
    idx.write(tmp_path / "images", pixels())
    read = idx.read(tmp_path / "images", 3)
    idx.write(tmp_path / "images", pixels(1))
    assert np.array_equal(read, pixels()) and np.array_equal(idx.read(tmp_path / "images", 3), pixels(1))


def test_a_packed_file_is_unpacked_once_and_mapped(
    tmp_path: Path, unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed_file(tmp_path / "images.gz", pixels())
    first = idx.read(path, 3)
    monkeypatch.setattr(gzip, "open", fails(AssertionError("unpacked twice")))
    second = idx.read(path, 3)
    for read in (first, second):
        assert np.array_equal(read, pixels()) and is_mapped(read) and not read.flags.writeable
    assert len(list(unpacked.iterdir())) == 1


def test_a_changed_file_is_unpacked_again_and_the_old_copy_is_deleted(tmp_path: Path, unpacked: Path) -> None:
    path, other = packed_file(tmp_path / "images.gz", pixels()), packed_file(tmp_path / "others.gz", pixels(7))
    before, unchanged = idx.read(path, 3), idx.read(other, 3)
    size, changed_ns = path.stat().st_size, path.stat().st_mtime_ns
    packed_file(path, pixels(1))
    os.utime(path, ns=(changed_ns, changed_ns + 1))
    assert path.stat().st_size == size
    assert np.array_equal(idx.read(path, 3), pixels(1))
    assert np.array_equal(before, pixels()), "a mapping outlives its file"
    assert len(list(unpacked.iterdir())) == 2 and np.array_equal(unchanged, idx.read(other, 3))


def test_two_names_of_one_file_share_what_is_unpacked(tmp_path: Path, unpacked: Path) -> None:
    path = packed_file(tmp_path / "images.gz", pixels())
    (tmp_path / "link.gz").symlink_to(path)
    assert np.array_equal(idx.read(path, 3), idx.read(tmp_path / "link.gz", 3))
    assert len(list(unpacked.iterdir())) == 1


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (shutil, "copyfileobj", OSError(errno.ENOSPC, "no space left on device")),
        (Path, "mkdir", PermissionError(errno.EACCES, "permission denied")),
        (Path, "home", RuntimeError("could not determine home directory")),
        (mmap, "mmap", OSError(errno.ENODEV, "no such device")),
    ],
    ids=["the disk is full", "the cache is read-only", "there is no home", "the file system cannot map"],
)
def test_where_nothing_can_be_cached_or_mapped_files_are_read(
    tmp_path: Path, unpacked: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception
) -> None:
    if name == "home":
        monkeypatch.delenv("SEEDBUS_CACHE")
    path = packed_file(tmp_path / "images.gz", pixels())
    idx.write(tmp_path / "images", pixels())
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails(error))
        for read in (idx.read(path, 3), idx.read(tmp_path / "images", 3)):
            assert np.array_equal(read, pixels()) and not read.flags.writeable
    leftovers = list(unpacked.iterdir()) if unpacked.exists() else []
    assert len(leftovers) == (name == "mmap"), "no partial files are left"


def test_a_cache_path_that_is_no_folder_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    assert np.array_equal(idx.read(packed_file(tmp_path / "images.gz", pixels()), 3), pixels())


@pytest.mark.parametrize(
    "spoil", [lambda packed: packed[:-9], lambda packed: packed[:-8] + bytes(8), lambda _: b"<html>"]
)
def test_a_file_that_cannot_be_unpacked_leaves_nothing_in_the_cache(tmp_path: Path, unpacked: Path, spoil: Any) -> None:
    path = packed_file(tmp_path / "images.gz", pixels())
    path.write_bytes(spoil(path.read_bytes()))
    for _ in range(2):
        with pytest.raises(DataError, match=r"images.gz: found (a gzip stream that ends early|damaged gzip data)"):
            idx.read(path, 3)
    assert list(unpacked.iterdir()) == []


def test_an_error_names_the_packed_file_and_not_the_cache(tmp_path: Path) -> None:
    path = packed_file(tmp_path / "images.gz", pixels())
    for _ in range(2):
        with pytest.raises(DataError, match=r"images.gz: found magic number 2051; expected 2049"):
            idx.read(path, 1)
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(DataError, match=r"images.gz: found 0 bytes; expected an idx header of 16 bytes"):
        idx.read(path, 3)
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match=r"empty: found 0 bytes; expected an idx header of 16 bytes"):
        idx.read(tmp_path / "empty", 3)


@pytest.mark.few(4)
@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ([0, 1, 1, 1], r"images.gz: found magic number 0; expected 2051"),
        ([2051, 5, 4, 3], r"images.gz: found more data bytes; expected 60 for sizes 5×4×3$"),
        (
            [2051, 10**9, 10**9, 10**9],
            r"found a header that declares 10+ for sizes (10+×?){3}; expected at most 268435456 data bytes in a .gz",
        ),
    ],
)
def test_no_more_is_unpacked_than_the_header_declares(
    tmp_path: Path, unpacked: Path, monkeypatch: pytest.MonkeyPatch, is_cached: bool, header: list[int], sentence: str
) -> None:
    """A file of 20 kB that holds 20 MB is given up after its first megabytes, in the cache or in memory."""
    if not is_cached:
        monkeypatch.setattr(Path, "mkdir", fails(PermissionError(errno.EACCES, "permission denied")))
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(struct.pack(">4I", *header) + bytes(20 * 2**20)))
    read = 0
    original = gzip.GzipFile.read

    def counted(file: gzip.GzipFile, size: int | None = -1) -> bytes:
        nonlocal read
        content = original(file, size)
        read += len(content)
        return content

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(DataError, match=sentence):
        idx.read(path, 3)
    assert read <= 2 * 2**20
    assert not unpacked.exists() or list(unpacked.iterdir()) == []


def test_threads_that_unpack_at_once_all_succeed_and_leave_one_file(
    tmp_path: Path, unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed_file(tmp_path / "images.gz", pixels())
    together, copy, reads = threading.Barrier(PROCESSES), shutil.copyfileobj, []

    def copy_together(*arguments: Any) -> None:
        copy(*arguments)
        together.wait()  # every thread unpacks before any moves its file into place

    monkeypatch.setattr(shutil, "copyfileobj", copy_together)
    threads = [threading.Thread(target=lambda: reads.append(idx.read(path, 3))) for _ in range(PROCESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reads) == PROCESSES and all(is_mapped(read) and np.array_equal(read, pixels()) for read in reads)
    assert len(list(unpacked.iterdir())) == 1


def _meet(barrier: Barrier) -> None:
    global _barrier
    _barrier = barrier


def _read_together(path: Path) -> tuple[int, bool]:
    _barrier.wait()
    read = idx.read(path, 3)
    return int(read.sum()), is_mapped(read)


_barrier: Barrier


@pytest.mark.slow
def test_processes_that_unpack_at_once_all_succeed(tmp_path: Path, unpacked: Path) -> None:
    array = np.random.Generator(np.random.Philox(0)).integers(0, 256, (5_000, 28, 28), dtype=np.uint8)
    path = packed_file(tmp_path / "images.gz", array)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, context, _meet, (context.Barrier(PROCESSES),)) as pool:
        reads = list(pool.map(_read_together, [path] * PROCESSES))
    assert reads == [(int(array.sum()), True)] * PROCESSES
    assert len(list(unpacked.iterdir())) == 1


def test_holding_samples_out_copies_no_pixels() -> None:
    task = Digits()
    learned, _ = task.load()
    trained, validated = task.hold_out(learned)
    for part in (trained, validated):
        assert part.stored is learned.stored and part.pixels.shape == (part.labels.size, 8, 8, 1)
        assert np.array_equal(part.pick(np.array([3, 1])), part.pixels[[3, 1]])
        assert np.array_equal(part.take(np.array([3, 1])).take(np.array([1])).pixels, part.pixels[[1]])
    together = np.concatenate([trained.pixels, validated.pixels]).reshape(-1, 64)
    assert sorted(map(bytes, together)) == sorted(map(bytes, learned.pixels.reshape(-1, 64)))
