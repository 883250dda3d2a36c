"""The settings of a fine-tuned causal language model: the fields of `task:`, and what follows without torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from seedbus.models.text.task import TextTask
from seedbus.models.text.training import Full, Training
from seedbus.models.text.weights import look


class LanguageModelSettings(TextTask, frozen=True):
    """What a scenario says of a causal language model that is fine-tuned on prompts."""

    model: str = Field(
        "facebook/opt-125m",
        min_length=1,
        description="a name on the Hugging Face hub, or a folder, which may lie beside the scenario's file",
    )
    dataset: Literal["sst2", "cb", "wsc", "wic", "rte", "boolq", "multirc", "qqp", "squad"] = Field(
        "sst2", description="what is learned; squad is generated and measured by F1, the others are classified"
    )
    train: Training = Field(Full(), description="which weights are trained: x")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="how frozen weights are stored; they are computed with in float32 all the same"
    )
    max_length: int | None = Field(
        None, ge=8, description="tokens of prompt and answer; a longer prompt loses its beginning; none: the context"
    )
    loss: Literal["answer", "options"] = Field(
        "answer",
        description="answer: minus the mean log-likelihood of the right answer's tokens; options: cross-entropy over "
        "the mean log-likelihoods of all answers (MeZO's code for classification)",
    )
    answer_tokens: int = Field(50, ge=1, le=2048, description="length of a generated answer, at most (SQuAD)")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.dtype != "float32" and self.train.kind in ("full", "prefix"):
            why = "freezes none" if self.train.kind == "full" else "peft rounds to the type of frozen weights"
            raise ValueError(
                f"dtype is {self.dtype}, for frozen weights, and train is {self.train.kind}, which {why}; expected "
                "dtype: float32, or train: {kind: lora} or {kind: layernorm}"
            )
        if self.loss == "options" and self.dataset == "squad":
            raise ValueError("loss is options, and squad's answers are text, not classes; expected loss: answer")
        return self

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]  # a task's class has one tuple; here the set decides
        """What an evaluation measures; accuracy of SQuAD is its exact match."""
        return ("loss", "accuracy", "f1") if self.dataset == "squad" else ("loss", "accuracy")

    def smaller(self) -> list[str]:
        """See `task.Task`."""
        if self.train.kind == "full":
            return ["task.train: {kind: lora}", *super().smaller()]
        is_wide = self.dtype == "float32" and self.train.kind != "prefix"
        return [*(["task.dtype: bfloat16"] if is_wide else []), *super().smaller()]

    @property
    def dimension(self) -> int:
        """d, from the model's configuration and header. Raises `DataError` where neither is on this machine."""
        return self.train.count(look(self.model))
