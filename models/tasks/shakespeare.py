"""Shakespeare (McMahan et al. 2017; Caldas et al. 2019): the next character of a play, with the speaking roles.

Read from LEAF's JSON in $SEEDBUS_DATA/leaf-shakespeare/ (see `leaf`): 80 characters and the next one, from LEAF's
alphabet of 80 symbols. With `partition: natural` each client is a speaking role of one play.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.data.leaf import read_leaf
from seedbus.models.data.samples import Images
from seedbus.models.images.task import ClassifierTask
from seedbus.models.own_code.named import function_or, name_of
from seedbus.models.preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import nn

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
LENGTH = 80
_NUMBERS = {symbol: number for number, symbol in enumerate(ALPHABET)}


class Shakespeare(ClassifierTask, frozen=True):
    """The next character of a play, by speaking role (LEAF): an LSTM of 819,920 parameters."""

    name: Literal["shakespeare"] = "shakespeare"
    model: Annotated[Any, *function_or("lstm")] = Field(
        "lstm", description="LEAF's LSTM, or your own network, from the numbers of 80 symbols to logits"
    )

    has_owners: ClassVar[bool] = True

    @property
    def our_dimension(self) -> int:
        return 819_920

    def network(self) -> nn.Module:
        from seedbus.models.images import networks

        return networks.character_lstm(len(ALPHABET))

    def load(self) -> tuple[Images, Images]:
        """Return all roles' training texts (validation included) and test texts. Raises `DataError`."""
        return read_leaf("leaf-shakespeare", 2, _encode)

    def preprocessing(self) -> Preprocessing:
        """See `task.Task`."""
        return Preprocessing(
            task=self.name, model=name_of(self.model), classes=tuple(ALPHABET), symbols=ALPHABET, length=LENGTH
        )

    def inputs(self, stored: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the numbers of the symbols, int64 [b, 80]."""
        return stored.astype(np.int64)


def _encode(x: list[Any], y: list[Any]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return a user's symbols, uint8 [n, 80], and the next ones, uint8 [n]."""
    for texts, length, what in ((x, LENGTH, "a text"), (y, 1, "a next character")):
        if not all(isinstance(text, str) and len(text) == length for text in texts):
            raise ValueError(f"{what}; {length} of the {len(ALPHABET)} symbols of LEAF")
        unknown = sorted(set("".join(texts)) - _NUMBERS.keys())
        if unknown:
            raise ValueError(f"{what} with {unknown[0]!r}; {length} of the {len(ALPHABET)} symbols of LEAF")
    symbols = np.array([_NUMBERS[symbol] for symbol in "".join(x)], dtype=np.uint8).reshape(-1, LENGTH)
    return symbols, np.array([_NUMBERS[symbol] for symbol in y], dtype=np.uint8)
