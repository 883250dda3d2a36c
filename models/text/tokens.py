"""From samples to tokens, and from tokens to batches: where an answer begins, what is cut, what fills a batch up.

The invariant: only the answer's own tokens are ever scored, never the prompt's and never what fills a row up. A row is
filled up at its end, where causal attention cannot look, so its scores are those that it would have alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seedbus.models.errors import DataError
from seedbus.models.text.files import Sample
from seedbus.models.text.prompts import END_OF_ANSWER, Prompt


class Pair(NamedTuple):
    """A prompt and one answer to it, as tokens."""

    prompt: list[int]
    answer: list[int]

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.answer)


class Batch(NamedTuple):
    """Pairs as tensors; pairs that differ in their last token only share a row, which is then computed once."""

    ids: Tensor  # int64 [rows, width]; the last token of a pair is never fed in, for nothing follows it
    rows: Tensor  # int64 [n]: for every token of every answer, where the token before it stands
    columns: Tensor  # int64 [n]
    targets: Tensor  # int64 [n]: the token itself
    owners: Tensor  # int64 [n]: which pair it belongs to
    lengths: Tensor  # int64 [pairs]: tokens of each answer


class Encoder:
    """What a data set's samples are to a model: prompts and answers in its tokens.

    limit: the most tokens that prompt and answer may have together. A longer prompt loses its beginning, as in MeZO's
    code. **Ours**: a sequence begins as the tokenizer says (OPT: </s>, as it was pretrained; MeZO's code has <s>).
    """

    def __init__(self, tokenizer: Any, prompt: Prompt, limit: int | None) -> None:
        self._tokenizer, self._prompt, self._limit = tokenizer, prompt, limit
        self._begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        newline = tokenizer(END_OF_ANSWER, add_special_tokens=False)["input_ids"][:1]
        self.ends = newline + ([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])

    def pairs(self, sample: Sample) -> list[Pair]:
        """One pair for each class, or one with the first accepted answer where these are text. Raises `DataError`."""
        prompt = self._prompt.show(sample.fields)
        texts = self._prompt.answers or (sample.answers[0] + END_OF_ANSWER,)
        start, *wholes = self._encoded([prompt, *(prompt + self._prompt.joint + text for text in texts)])
        return [self._pair(start, whole) for whole in wholes]

    def question(self, sample: Sample, room: int) -> list[int]:
        """The prompt alone, with room for so many tokens of an answer."""
        (tokens,) = self._encoded([self._prompt.show(sample.fields)])
        return self._begin + self._end_of(tokens, room)

    def text(self, tokens: list[int]) -> str:
        """A generated answer as text: its first line."""
        decoded: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return decoded.strip().partition(END_OF_ANSWER)[0]

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        found: list[list[int]] = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
        return found

    def _pair(self, start: list[int], whole: list[int]) -> Pair:
        """The answer is what the whole has beyond the tokens that it shares with the prompt alone."""
        shared = next(
            (n for n, (one, other) in enumerate(zip(start, whole, strict=False)) if one != other),
            min(len(start), len(whole)),
        )
        answer = whole[shared:]
        if not answer:
            raise DataError("task.model", "a tokenizer for which an answer has no tokens", "another tokenizer")
        return Pair(self._begin + self._end_of(whole[:shared], len(answer)), answer)

    def _end_of(self, prompt: list[int], room: int) -> list[int]:
        if self._limit is None:
            return prompt
        left = self._limit - len(self._begin) - room
        if left < 1:
            raise DataError(
                "task.max_length",
                f"{self._limit} tokens, and an answer of {room} leaves none for its prompt",
                f"at least {len(self._begin) + room + 1}, within the model's context",
            )
        return prompt[-left:]


def collate(pairs: Sequence[Pair]) -> Batch:
    """The pairs as one batch, in their order."""
    places: dict[tuple[int, ...], int] = {}
    tokens: list[tuple[int, int, int, int]] = []
    for owner, pair in enumerate(pairs):
        fed = (*pair.prompt, *pair.answer[:-1])
        row = places.setdefault(fed, len(places))
        first = len(pair.prompt) - 1
        tokens += [(row, first + place, token, owner) for place, token in enumerate(pair.answer)]
    width = max(map(len, places))
    ids = torch.tensor([(*fed, *(0,) * (width - len(fed))) for fed in places])
    rows, columns, targets, owners = torch.tensor(tokens).unbind(1)
    return Batch(ids, rows, columns, targets, owners, torch.tensor([len(pair.answer) for pair in pairs]))


def chunks(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Indices in groups of similar length, the longest last, of at most so many tokens once filled up."""
    groups: list[list[int]] = [[]]
    for index in sorted(range(len(lengths)), key=lambda index: (lengths[index], index)):
        if groups[-1] and (len(groups[-1]) + 1) * lengths[index] > tokens:
            groups.append([])
        groups[-1].append(index)
    return groups
