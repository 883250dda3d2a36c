"""Metrics of generated answers: F1 and exact match, as in the official script of SQuAD (Rajpurkar et al. 2016)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Return the text in lower case, without punctuation, articles and superfluous spaces."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split())


def f1(answer: str, accepted: Sequence[str]) -> float:
    """Return the highest word F1 of an answer with any of the accepted answers."""
    return max(_f1(normalised(answer).split(), normalised(each).split()) for each in accepted)


def is_exact(answer: str, accepted: Sequence[str]) -> bool:
    """True if the normalised answer equals one of the normalised accepted answers."""
    return normalised(answer) in {normalised(each) for each in accepted}


def _f1(answer: list[str], accepted: list[str]) -> float:
    common = sum((Counter(answer) & Counter(accepted)).values())
    if common == 0:
        return 0.0
    precision = common / len(answer)
    recall = common / len(accepted)
    return 2 * precision * recall / (precision + recall)
