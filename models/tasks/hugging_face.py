"""Any data set and any pretrained classifier or causal language model of the Hugging Face libraries.

The model is loaded by one of three classes of `transformers`: AutoModelForImageClassification,
AutoModelForSequenceClassification or AutoModelForCausalLM. The data set is read by `datasets`. A classifier is trained
by cross-entropy; a causal model by the mean negative log-likelihood of a text's tokens, averaged over texts.
"""

from __future__ import annotations

from typing import Literal

from seedbus.models.hub.settings import HuggingFaceSettings
from seedbus.models.partition import Partition
from seedbus.models.task import Problem


class HuggingFace(HuggingFaceSettings, frozen=True):
    """A model of `transformers` on a data set of `datasets`: images or text with classes, or text alone."""

    name: Literal["hugging-face"] = "hugging-face"

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load model and samples, and divide the training samples among the clients. Raises `DataError`."""
        from seedbus.models.hub.problem import HubProblem

        return HubProblem(self, seed=seed, clients=clients, partition=partition)
