"""Fine-tuning of a pretrained causal language model on a prompted task, as MeZO (Malladi et al. 2023) does it.

x is what is trained; its initial value is the pretrained weights, never a draw. See `prompts` for what the model is
shown, `text_files` for where samples are looked for, `language_training` for what is trained.
"""

from __future__ import annotations

from typing import Literal

from seedbus.models.partitions import Partition
from seedbus.models.task import Problem
from seedbus.models.text.language_settings import LanguageModelSettings


class LanguageModel(LanguageModelSettings, frozen=True):
    """A causal language model, fine-tuned on prompts; accuracy compares the answers' mean log-likelihoods."""

    name: Literal["language-model"] = "language-model"

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load model and samples, and divide the training samples among the clients. Raises `DataError`."""
        from seedbus.models.text.language_problem import LanguageProblem

        return LanguageProblem(self, seed=seed, clients=clients, partition=partition)
