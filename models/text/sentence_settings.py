"""The settings of a sentence encoder: the fields of `task:`, and values that need no torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from seedbus.models.errors import DataError
from seedbus.models.text.files import SETS
from seedbus.models.text.shapes import whole
from seedbus.models.text.stated import StatedColumns
from seedbus.models.text.task import TextTask
from seedbus.models.text.training import Full, Head, Lora
from seedbus.models.text.weights import Pretrained, inspect_pretrained

TEXTS = {  # which fields of a sample are encoded
    "sst2": ("sentence",),
    "rte": ("premise", "hypothesis"),
    "cb": ("premise", "hypothesis"),
    "qqp": ("question1", "question2"),
}


class SentenceEncoderSettings(TextTask, frozen=True):
    """The fields of a task that trains a sentence encoder with a linear classifier."""

    metrics: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    model: str = Field(
        "sentence-transformers/all-MiniLM-L6-v2",
        min_length=1,
        description="a name on the Hugging Face hub, or a folder, which may be relative to the scenario's file",
    )
    dataset: Literal["sst2", "rte", "cb", "qqp", "own"] = Field("sst2", description="the data set; own: owners' texts")
    texts: StatedColumns | None = Field(None, description="for `partition: own`: what owners' texts have in common")
    train: Annotated[Head | Full | Lora, Field(discriminator="kind")] = Field(
        Head(), description="what is trained besides the classifier"
    )
    max_length: int = Field(128, ge=4, le=512, description="most tokens of a text; the end of a longer text is cut")

    @property
    def encoded(self) -> tuple[str, ...]:
        """Which fields of a sample are encoded, one or two."""
        return TEXTS[self.dataset] if self.texts is None else self.texts.shown

    @property
    def classes(self) -> int:
        return len(SETS[self.dataset].labels if self.texts is None else self.texts.labels)

    def memory_saving_settings(self) -> list[str]:
        """See `task.Task`."""
        return [
            *([] if isinstance(self.train, Head) else ["task.train: {kind: head}"]),
            *super().memory_saving_settings(),
        ]

    @property
    def dimension(self) -> int:
        """d, from the encoder's configuration and header. Raises `DataError` if they are not on this machine."""
        pretrained = inspect_pretrained(self.model)
        if "hidden_size" not in pretrained.config:
            raise DataError(f"task.model {self.model}", "no hidden_size in its config.json", "a BERT-like encoder")
        features = (1 if len(self.encoded) == 1 else 3) * whole(
            pretrained.config, "hidden_size", f"task.model {self.model}"
        )
        head = (features + 1) * self.classes
        if isinstance(self.train, Head):
            return head
        used = {name: shape for name, shape in pretrained.shapes.items() if not name.startswith("pooler.")}
        return head + self.train.count(Pretrained(pretrained.config, used))
