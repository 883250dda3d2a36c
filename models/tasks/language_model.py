"""Fine-tuning of a pretrained causal language model on a prompted task, as in MeZO (Malladi et al. 2023).

x holds the trained parameters; it starts at the pretrained weights. `models/text` has the prompts (`prompts`), the
files of the samples (`files`) and the choice of trained parameters (`training`).
"""

from __future__ import annotations

from typing import Literal

from seedbus.models.partition import Partition
from seedbus.models.task import Problem
from seedbus.models.text.language_settings import LanguageModelSettings


class LanguageModel(LanguageModelSettings, frozen=True):
    """A causal language model, fine-tuned on prompts; accuracy compares the answers' mean log-likelihoods."""

    name: Literal["language-model"] = "language-model"

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load model and samples, and divide the training samples among the clients. Raises `DataError`."""
        from seedbus.models.text.language_problem import LanguageProblem

        return LanguageProblem(self, seed=seed, clients=clients, partition=partition)
