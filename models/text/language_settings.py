"""The settings of a fine-tuned causal language model: the fields of `task:`, and values that need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from seedbus.models.errors import DataError
from seedbus.models.task import PassCost
from seedbus.models.text.cost import PACKED, TEXTS, pass_flops
from seedbus.models.text.prompts import PROMPTS, Prompt
from seedbus.models.text.shapes import is_size
from seedbus.models.text.stated import StatedPrompt
from seedbus.models.text.task import PrecisionTask, TextTask
from seedbus.models.text.training import Full, Prefix, Training
from seedbus.models.text.weights import inspect_pretrained, within_context


class LanguageModelSettings(PrecisionTask, TextTask, frozen=True):
    """The fields of a task that fine-tunes a causal language model on prompts."""

    model: str = Field(
        "facebook/opt-125m",
        min_length=1,
        description="a name on the Hugging Face hub, or a folder or a GGUF file, relative to the scenario's file, too",
    )
    dataset: Literal["sst2", "cb", "wsc", "wic", "rte", "boolq", "multirc", "qqp", "squad", "own"] = Field(
        "sst2",
        description="the data set; answers of squad are generated and evaluated by F1, the others are classified; "
        "own: owners' texts",
    )
    texts: StatedPrompt | None = Field(None, description="for `partition: own`: what owners' texts have in common")
    train: Training = Field(Full(), description="which weights are trained; they are x")
    max_length: int | None = Field(
        None,
        ge=8,
        description="most tokens of prompt and answer; the beginning of a longer prompt is cut; none: the context",
    )
    loss: Literal["answer", "options"] = Field(
        "answer",
        description="answer: minus the mean log-likelihood of the right answer's tokens; options: cross-entropy over "
        "the mean log-likelihoods of all answers (MeZO's code for classification)",
    )
    batching: Literal["padded", "packed"] = Field(
        "padded",
        description="padded: the texts of a batch are rows of one width; packed: they follow one another without "
        "padding, and the last block and the head compute what the loss needs only, which is faster on processors",
    )
    answer_tokens: int = Field(50, ge=1, le=2048, description="length of a generated answer, at most (SQuAD)")

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.loss == "options" and self.dataset == "squad":
            raise ValueError("loss is options, and squad's answers are text, not classes; expected loss: answer")
        if self.batching == "packed" and isinstance(self.train, Prefix):
            raise ValueError(
                "batching is packed, and train is prefix, which begins every row; expected batching: padded"
            )
        return self

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]  # a class variable of Task; here it depends on the data set
        """The metrics of an evaluation. The accuracy of SQuAD is its exact match."""
        return ("loss", "accuracy", "f1") if self.dataset == "squad" else ("loss", "accuracy")

    @property
    def prompt(self) -> Prompt:
        """What the model is asked about a sample."""
        return PROMPTS[self.dataset] if self.texts is None else self.texts.as_prompt

    @property
    def classes(self) -> int:
        """The number of answers; 0: answers are text of the samples."""
        return len(self.prompt.answers)

    def memory_saving_settings(self) -> list[str]:
        """See `task.Task`."""
        if self.train.kind == "full":
            return ["task.train: {kind: lora}", *super().memory_saving_settings()]
        return super().memory_saving_settings()

    def pass_cost(self) -> PassCost | None:
        """See `task.Task`: of texts of the data set's usual length. Raises `DataError`."""
        if self.has_stated:
            return None
        pretrained, texts = inspect_pretrained(self.model), TEXTS[self.dataset]
        computed = self.train.computed(pretrained.shapes) if self.train.kind == "last-blocks" else pretrained.shapes
        tokens = min(texts.tokens, self.max_length or texts.tokens)
        each = pass_flops(computed, pretrained.config, ceil(PACKED * tokens) if self.batching == "packed" else tokens)
        answers = self.classes or 1
        token = 0.0 if self.classes else pass_flops(pretrained.shapes, pretrained.config, 1)
        trained = each * (answers if self.loss == "options" else 1)
        return PassCost(
            trained, each * answers, token * self.answer_tokens, min(self.evaluated, texts.tested), texts.trained
        )

    @property
    def dimension(self) -> int:
        """d, from the model's configuration and header. Raises `DataError` if they are not on this machine."""
        pretrained = inspect_pretrained(self.model)
        self._check_context(pretrained.config)
        return self.train.count(pretrained)

    def _check_context(self, config: Mapping[str, Any]) -> None:
        """Raise `DataError` where the model's context has no room for `max_length`, or for a prompt and its answer."""
        most: Any = config.get("max_position_embeddings")
        if is_size(most) and isinstance(self.train, Prefix):
            most -= self.train.tokens
        limit = within_context(self.max_length, most if is_size(most) else None, self.model)
        if self.dataset == "squad" and limit is not None and limit <= self.answer_tokens:
            found = f"{limit} tokens, and an answer of {self.answer_tokens} leaves none for its prompt"
            raise DataError("task.max_length", found, f"more than {self.answer_tokens} (task.answer_tokens)")
