"""What can be wrong with data: one exception, one sentence."""

from __future__ import annotations


class DataError(ValueError):
    """Data that is missing, damaged, or cannot be divided as asked.

    where: the file, partition or task; found: what is there; expected: what would be accepted.
    """

    def __init__(self, where: object, found: str, expected: str) -> None:
        super().__init__(f"{where}: found {found}; expected {expected}")
        self.where, self.found, self.expected = str(where), found, expected
