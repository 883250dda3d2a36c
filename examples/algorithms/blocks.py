from typing import Any, Literal

from pydantic import Field

from seedbus.plugin import DeComFL, Directions, Law, Vector


class OnBlock:
    """Directions that are 0 outside the coordinates from `first` to `last`."""

    def __init__(self, source: Directions, first: int, last: int) -> None:
        self.source, self.first, self.last = source, first, last

    @property
    def law(self) -> Law:
        return self.source.law

    def fill(self, out: Vector, *, start: int = 0, **of: Any) -> None:
        self.source.fill(out, start=start, **of)
        for outside in self.outside(start):
            out[outside] = 0

    def accumulate(self, out: Vector, coefficients: Any, *, start: int = 0, **of: Any) -> None:
        self.source.accumulate(out, coefficients, start=start, **of)
        for outside in self.outside(start):
            out[outside] = 0

    def perturb(self, out: Vector, x: Vector, scale: float, *, start: int = 0, **of: Any) -> None:
        unmoved = [x[outside] + 0 for outside in self.outside(start)]  # copies: out may be x itself
        self.source.perturb(out, x, scale, start=start, **of)
        for outside, values in zip(self.outside(start), unmoved, strict=True):
            out[outside] = values

    def outside(self, start: int) -> list[slice]:
        """A call is given the coordinates from `start` on."""
        return [slice(0, max(0, self.first - start)), slice(max(0, self.last - start), None)]


class Blocks(DeComFL):
    """DeComFL along a tenth of the coordinates, the next one in each round."""

    name: Literal["blocks"] = "blocks"
    share: float = Field(default=0.1, gt=0, le=1, description="fraction of the coordinates that a round moves")

    def directions_of(self, source: Directions, round: int) -> OnBlock:
        size = max(1, int(self.share * self._dimension))
        first = size * round % self._dimension
        return OnBlock(source, first, first + size)
