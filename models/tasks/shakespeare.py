"""Shakespeare (McMahan et al. 2017; Caldas et al. 2019): the next character of a play, and which role speaks.

Read from LEAF's JSON in $SEEDBUS_DATA/leaf-shakespeare/ (see `leaf`): 80 characters, and the one that follows, out of
LEAF's alphabet of 80 symbols. With `partition: natural` a client is a speaking role of one play.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seedbus.models.data.leaf import read_leaf
from seedbus.models.data.samples import Images
from seedbus.models.images.task import ClassifierTask

if TYPE_CHECKING:
    from torch import nn

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
LENGTH = 80
_NUMBERS = {symbol: number for number, symbol in enumerate(ALPHABET)}


class Shakespeare(ClassifierTask, frozen=True):
    """The next character of a play, by speaking role (LEAF): an LSTM of 819,920 parameters."""

    name: Literal["shakespeare"] = "shakespeare"

    has_owners: ClassVar[bool] = True

    @property
    def dimension(self) -> int:
        return 819_920

    def network(self) -> nn.Module:
        from seedbus.models.images import networks

        return networks.character_lstm(len(ALPHABET))

    def load(self) -> tuple[Images, Images]:
        """All roles' texts to train on (validation included) and to test on. Raises `DataError`."""
        return read_leaf("leaf-shakespeare", "train", 2, _encode), read_leaf("leaf-shakespeare", "test", 2, _encode)

    def inputs(self, stored: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The numbers of the symbols, [b, 80]."""
        return stored.astype(np.int64)


def _encode(x: list[Any], y: list[Any]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Symbols [n, 80] and the ones that follow [n]."""
    for texts, length, what in ((x, LENGTH, "a text"), (y, 1, "a next character")):
        if not all(isinstance(text, str) and len(text) == length for text in texts):
            raise ValueError(f"{what}; {length} of the {len(ALPHABET)} symbols of LEAF")
        strange = sorted(set("".join(texts)) - _NUMBERS.keys())
        if strange:
            raise ValueError(f"{what} with {strange[0]!r}; {length} of the {len(ALPHABET)} symbols of LEAF")
    symbols = np.array([_NUMBERS[symbol] for symbol in "".join(x)], dtype=np.uint8).reshape(-1, LENGTH)
    return symbols, np.array([_NUMBERS[symbol] for symbol in y], dtype=np.uint8)
