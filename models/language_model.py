"""Fine-tuning of a pretrained causal language model on a prompted task, as MeZO (Malladi et al. 2023) does it.

x is what is trained; its initial value is the pretrained weights, never a draw. See `prompts` for what the model is
shown, `text_files` for where samples are looked for, `language_training` for what is trained.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator

from seedbus.models.language_training import Full, Training
from seedbus.models.partitions import Partition
from seedbus.models.streams import stream
from seedbus.models.task import Problem, Task
from seedbus.models.text_files import Sample, read
from seedbus.models.weights import look


class TextTask(Task, frozen=True):
    """What tasks on labelled text have in common: which samples are used, and how they are held out."""

    data: str | None = Field(
        None, description="a folder with the set's own files; none: $SEEDBUS_DATA/<dataset>, or the hub"
    )
    batch_size: int = Field(32, ge=1, description="samples a local step uses; a client with fewer uses all it has")
    shots: int | None = Field(
        None, ge=1, description="training samples per class, drawn by key (SQuAD: in all); none: all there are"
    )
    validation: float = Field(0.1, ge=0, le=0.5, description="fraction of the training samples held out for tuning")
    evaluated: int = Field(1000, ge=1, description="samples of a split that are measured, at most, the same every time")

    sets: ClassVar[dict[str, str]] = {}

    @field_validator("model", "data", check_fields=False)
    @classmethod
    def _placed(cls, value: str | None, info: ValidationInfo) -> str | None:
        """A folder beside the scenario's file is that folder, wherever the command is run."""
        folder = (info.context or {}).get("folder")
        beside = None if folder is None or value is None else Path(folder, value)
        return str(beside.absolute()) if beside is not None and beside.is_dir() else value

    def splits(self, dataset: str, seed: int) -> dict[str, list[Sample]]:
        """train, validation and test. What is held out depends on set and fraction alone, not on the seed."""
        learned, tested = read(dataset, self.data)
        count = round(self.validation * len(learned))
        order = stream("validation", dataset).permutation(len(learned))
        held, kept = np.sort(order[:count]), np.sort(order[count:])
        if self.shots is not None:
            kept = self._few(dataset, learned, kept, seed)
        return {
            "train": [learned[index] for index in kept],
            "validation": [learned[index] for index in held],
            "test": tested,
        }

    def _few(self, dataset: str, samples: list[Sample], kept: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """So many of each class; of a class with fewer, all. The articles of SQuAD are no classes."""
        labels = np.array([0 if dataset == "squad" else samples[index].label for index in kept])
        shuffled = stream("shots", dataset, seed).permutation(kept.size)
        chosen = [shuffled[labels[shuffled] == label][: self.shots] for label in np.unique(labels)]
        return np.sort(kept[np.concatenate(chosen)]) if chosen else kept

    def measured(self, dataset: str, count: int) -> NDArray[np.int64]:
        """Which of a split's samples are measured."""
        return np.sort(stream("evaluated", dataset).permutation(count)[: self.evaluated])


class LanguageModel(TextTask, frozen=True):
    """A causal language model, fine-tuned on prompts; accuracy compares the answers' mean log-likelihoods."""

    name: Literal["language-model"] = "language-model"
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
    def _sound(self) -> LanguageModel:
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

    @property
    def dimension(self) -> int:
        """d, from the model's configuration and header. Raises `DataError` where neither is on this machine."""
        return self.train.count(look(self.model))

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load model and samples, and divide the training samples among the clients. Raises `DataError`."""
        from seedbus.models.language_problem import LanguageProblem

        return LanguageProblem(self, seed=seed, clients=clients, partition=partition)
