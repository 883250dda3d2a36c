"""How samples become inputs of a network, and what its outputs mean: what an exported model needs to be applied.

`seedbus export RUN --out FILE` writes it into FILE, beside the tensors: one JSON object under the name `preprocessing`
in the file's metadata. `docs/how-to/model.md` describes it for programs that have no Seedbus, so a change of what a
field means, or a field that a reader must not pass over, is another `version`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from seedbus.settings import Settings

KEY = "preprocessing"
"""Its name in the file's metadata."""
MOST_TEXTS = 1000
"""Different texts of a column of a table, and classes, at most."""


class Numbers(Settings, frozen=True):
    """A column of numbers. Its one input is (number − mean) / deviation, in float64, rounded to float32."""

    name: str
    mean: float
    deviation: float = Field(gt=0)

    @property
    def inputs(self) -> list[str]:
        """The names of its inputs."""
        return [self.name]


class Texts(Settings, frozen=True):
    """A column of texts. It has an input for each of `texts`, 1 if the cell is that text and 0 otherwise.

    Of a number or truth value, the text may be another spelling (`spelling.value_of`).
    """

    name: str
    texts: Annotated[tuple[str, ...], Field(max_length=MOST_TEXTS)]

    @property
    def inputs(self) -> list[str]:
        """The names of its inputs."""
        return [f"{self.name}={text}" for text in self.texts]


Column = Numbers | Texts


class Image(Settings, frozen=True):
    """An image [height, width, channels] of whole numbers from 0 (black) to `white`.

    An input is (pixel / white − mean) / deviation of its channel, in float64, rounded to float32; the network takes
    [channels, height, width].
    """

    height: int = Field(ge=1, le=1024)
    width: int = Field(ge=1, le=1024)
    channels: Literal[1, 3]
    white: int = Field(ge=1, le=255)
    mean: tuple[float, ...]
    """Of all channels together, or of each."""
    deviation: tuple[Annotated[float, Field(gt=0)], ...]

    @model_validator(mode="after")
    def _check_channels(self) -> Self:
        if len(self.mean) != len(self.deviation) or len(self.mean) not in (1, self.channels):
            raise ValueError(f"mean and deviation are not of 1 or {self.channels} channels")
        return self


class Preprocessing(Settings, frozen=True):
    """All that is known of a model's inputs and outputs. Fields that a task does not need are left out."""

    version: Literal[1] = 1
    task: str
    model: str | None = None
    """`task.model`: a network of ours, or the name of the user's function."""
    classes: tuple[str, ...] | None = None
    """The names of the classes, in the order of the outputs."""
    number: Numbers | None = None
    """In the place of classes: the column of numbers that is predicted, which are output · deviation + mean."""
    columns: Annotated[tuple[Column, ...], Field(min_length=1)] | None = None
    """Of a table, in the order of the inputs."""
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """Between the cells of a table's CSV files."""
    layers: tuple[str, ...] | None = None
    """The linear layers of a perceptron; all but the last are followed by ReLU."""
    image: Image | None = None
    symbols: str | None = None
    """Of a text: the number of a symbol is its place here."""
    length: int | None = None
    """Of a text, in symbols."""
    settings: dict[str, Any] | None = None
    """Of owners' texts: the fields of `task` in the scenario."""
    frozen: str | None = None
    """Of owners' texts: the digest of the tokenizer, and of the weights that are not in the file."""

    @model_validator(mode="after")
    def _check_output(self) -> Self:
        if (self.classes is None) == (self.number is None):
            raise ValueError("neither classes nor a number alone is predicted")
        return self

    @property
    def outputs(self) -> int:
        """The number of the network's outputs that mean something."""
        return 1 if self.classes is None else len(self.classes)

    def text(self) -> str:
        """Return it as JSON."""
        return self.model_dump_json(exclude_none=True)

    @staticmethod
    def of(text: str) -> Preprocessing:
        """Return what `text` was made of. Raises `ValueError` with a reason."""
        try:
            return Preprocessing.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}") from None


def as_text(value: str | float) -> str:
    """Return a cell of a table as text; a whole number without a point."""
    if isinstance(value, str):
        return value
    return str(int(value)) if value.is_integer() else repr(float(value))
