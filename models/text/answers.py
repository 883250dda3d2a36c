"""How a generated answer is measured: SQuAD's F1 and exact match (Rajpurkar et al. 2016, the official script)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Lower case, without punctuation, articles and superfluous space."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split())


def f1(given: str, accepted: Sequence[str]) -> float:
    """The best F1 over words between the answer and one of those accepted."""
    return max(_f1(normalised(given).split(), normalised(answer).split()) for answer in accepted)


def is_exact(given: str, accepted: Sequence[str]) -> bool:
    """Whether the answer is one of those accepted, once both are normalised."""
    return normalised(given) in {normalised(answer) for answer in accepted}


def _f1(given: list[str], accepted: list[str]) -> float:
    common = sum((Counter(given) & Counter(accepted)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(given), common / len(accepted)
    return 2 * precision * recall / (precision + recall)
