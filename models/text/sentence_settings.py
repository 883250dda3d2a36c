"""The settings of a sentence encoder: the fields of `task:`, and what follows from them without torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from seedbus.models.errors import DataError
from seedbus.models.text.files import SETS
from seedbus.models.text.task import TextTask
from seedbus.models.text.training import Full, Lora
from seedbus.models.text.weights import Pretrained, look

TEXTS = {  # which fields of a sample are encoded
    "sst2": ("sentence",),
    "rte": ("premise", "hypothesis"),
    "cb": ("premise", "hypothesis"),
    "qqp": ("question1", "question2"),
}


class Head(BaseModel, frozen=True, extra="forbid"):
    """The classifier alone; the encoder is frozen."""

    kind: Literal["head"] = "head"


class SentenceEncoderSettings(TextTask, frozen=True):
    """What a scenario says of a sentence encoder with a linear classifier."""

    metrics: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    model: str = Field(
        "sentence-transformers/all-MiniLM-L6-v2",
        min_length=1,
        description="a name on the Hugging Face hub, or a folder, which may lie beside the scenario's file",
    )
    dataset: Literal["sst2", "rte", "cb", "qqp"] = Field("sst2", description="what is learned")
    train: Annotated[Head | Full | Lora, Field(discriminator="kind")] = Field(
        Head(), description="what is trained besides the classifier; Lora's targets here are query and value, say"
    )
    max_length: int = Field(128, ge=4, le=512, description="tokens of a text; a longer one loses its end")

    @property
    def classes(self) -> int:
        return len(SETS[self.dataset].labels)

    def smaller(self) -> list[str]:
        """See `task.Task`."""
        return [*([] if isinstance(self.train, Head) else ["task.train: {kind: head}"]), *super().smaller()]

    @property
    def dimension(self) -> int:
        """d, from the encoder's configuration and header. Raises `DataError` where neither is on this machine."""
        known = look(self.model)
        if "hidden_size" not in known.config:
            raise DataError(f"task.model {self.model}", "no hidden_size in its config.json", "a BERT-like encoder")
        features = (1 if len(TEXTS[self.dataset]) == 1 else 3) * int(known.config["hidden_size"])
        head = (features + 1) * self.classes
        if isinstance(self.train, Head):
            return head
        own = {name: shape for name, shape in known.shapes.items() if not name.startswith("pooler.")}
        return head + self.train.count(Pretrained(known.config, own))
