"""Labelled samples as they are stored: bytes or numbers, labels and owners."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.models.partition import Divisible


class Images(NamedTuple):
    """Labelled images: all m stored ones or a selection of n. Pixels are copied only when they are requested.

    Texts are stored in the same way, as symbols [m, length], and rows of tables as float32 [m, numbers].

    Attributes:
        stored: uint8 [m, height, width, channels], often shared with other processes.
        labels: int64 [n].
        rows: int64 [n], indices of the selected images among those stored; None: all of them.
        owners: int64 [n], the number of each image's owner; None: images have no owners.
        column: returns the values [m] of a column of all stored samples; None: they have no columns.
        people: the names of owners 0, 1, …; none if owners have no names.
    """

    stored: NDArray[Any]
    labels: NDArray[np.int64]
    rows: NDArray[np.int64] | None = None
    owners: NDArray[np.int64] | None = None
    column: Callable[[str], NDArray[Any]] | None = None
    people: Sequence[str] = ()

    @property
    def divisible(self) -> Divisible:
        """What these images can be divided by; a row is the index of a stored image."""
        rows = np.full(len(self.stored), -1, dtype=np.int64)
        selected = slice(None) if self.rows is None else self.rows
        rows[selected] = np.arange(self.labels.size)
        column = self.column
        of_selected = None if column is None else lambda name: column(name)[selected]
        return Divisible(self.labels, rows, self.owners, of_selected, self.people)

    @property
    def pixels(self) -> NDArray[Any]:
        """The images' pixels, uint8 [n, height, width, channels]; a copy if these are a selection."""
        return self.stored if self.rows is None else self.stored[self.rows]

    def pick(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return a copy of some images' pixels, uint8 [b, height, width, channels]."""
        return self.stored[self.places(indices)]

    def places(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where some of these images are among those stored, [b]."""
        return indices if self.rows is None else self.rows[indices]

    def take(self, indices: NDArray[np.int64]) -> Images:
        """Return a selection of these images, without copying pixels."""
        rows = indices if self.rows is None else self.rows[indices]
        owners = None if self.owners is None else self.owners[indices]
        return self._replace(labels=self.labels[indices], rows=rows, owners=owners)

    def digest(self) -> bytes:
        """Return a digest of all stored samples, of which of them these are, and of their labels, 16 bytes."""
        state = hashlib.blake2b(digest_size=16)
        state.update(repr((self.stored.shape, self.stored.dtype.str)).encode())
        state.update(np.ascontiguousarray(self.stored).data)
        for numbers in (self.rows, self.labels):
            state.update(b"" if numbers is None else b"%d:" % numbers.size + numbers.astype("<i8").tobytes())
        return state.digest()
