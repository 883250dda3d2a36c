"""From samples to tokens, and from tokens to batches: the start of an answer, truncation and padding.

The invariant: only tokens of answers are scored, never those of prompts or padding. Rows are padded at their ends,
which causal attention does not see, so a row has the same scores as it would have alone.
"""

from __future__ import annotations

from collections import Counter
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


class Packed(NamedTuple):
    """The rows of a batch, one after the other, ordered by their tokens and by how many of those are scored."""

    ids: Tensor  # int64 [1, tokens]
    positions: Tensor  # int64 [1, tokens]: of each token in its row
    groups: tuple[tuple[int, int, int], ...]  # rows, the tokens of each, and how many of those are scored, from the end
    scored: Tensor  # int64 [scored]: places of the scored tokens
    places: Tensor  # int64 [n]: for each token of each answer, which of the scored ones is before it
    order: tuple[int, ...]  # the rows of the batch, as they follow one another
    columns: Tensor | None  # int64 [columns]: the tokens whose logits are needed; None: all
    choices: Tensor | None  # int64 [n]: which of the columns each token of each answer is


class Batch(NamedTuple):
    """Pairs as tensors. Pairs that differ only in their last token share a row, which is computed once."""

    ids: Tensor  # int64 [rows, width]; without the last token of each pair, which predicts nothing
    rows: Tensor  # int64 [n]: for each token of each answer, the row of the token before it
    columns: Tensor  # int64 [n]: its column
    targets: Tensor  # int64 [n]: the token itself
    owners: Tensor  # int64 [n]: the pair to which it belongs
    lengths: Tensor  # int64 [pairs]: number of tokens of each answer
    widths: Tensor  # int64 [rows]: number of tokens of each row
    # float32 [rows, width, hidden], packed [1, tokens, hidden]: what the first trained block begins with, if it is kept
    states: Tensor | None = None
    packed: Packed | None = None  # the layout, if the batch is computed without padding


class Encoder:
    """Encodes the samples of a data set as prompts and answers.

    **Ours**: a sequence begins with the tokenizer's own start token (OPT: </s>, as in pretraining; MeZO's code uses
    <s>).

    Attributes:
        ends: tokens that end a generated answer.
    """

    def __init__(self, tokenizer: Any, prompt: Prompt, limit: int | None) -> None:
        """Create an encoder.

        Args:
            tokenizer: a tokenizer of transformers.
            prompt: the prompt of the data set.
            limit: most tokens of prompt and answer together. The beginning of a longer prompt is cut, as in MeZO's
                code. None: unlimited.
        """
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._limit = limit
        self._begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        newline = tokenizer(END_OF_ANSWER, add_special_tokens=False)["input_ids"][:1]
        self.ends = newline + ([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])

    def pairs(self, sample: Sample) -> list[Pair]:
        """Return one pair for each class, or for text answers one with the first of them. Raises `DataError`."""
        prompt = self._prompt.show(sample.fields)
        texts = self._prompt.answers or (sample.answers[0] + END_OF_ANSWER,)
        prompt_tokens, *sequences = self._encoded([prompt, *(prompt + self._prompt.separator + text for text in texts)])
        return [self._pair(prompt_tokens, sequence) for sequence in sequences]

    def question(self, sample: Sample, reserved: int) -> list[int]:
        """Return the tokens of the prompt, cut so that `reserved` tokens remain for an answer. Raises `DataError`."""
        (tokens,) = self._encoded([self._prompt.show(sample.fields)])
        return self._begin + self._truncated(tokens, reserved)

    def text(self, tokens: list[int]) -> str:
        """Return a generated answer as text: its first line."""
        decoded: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return decoded.strip().partition(END_OF_ANSWER)[0]

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
        return ids

    def _pair(self, prompt: list[int], sequence: list[int]) -> Pair:
        """Split a sequence after the tokens that it shares with the prompt alone; the rest is the answer."""
        shared = next(
            (n for n, (one, other) in enumerate(zip(prompt, sequence, strict=False)) if one != other),
            min(len(prompt), len(sequence)),
        )
        answer = sequence[shared:]
        if not answer:
            raise DataError("task.model", "a tokenizer for which an answer has no tokens", "another tokenizer")
        before = self._begin + self._truncated(sequence[:shared], len(answer))
        if not before:  # nothing predicts the answer's first token
            raise DataError("task.model", "a tokenizer for which a prompt has no tokens", "another tokenizer")
        return Pair(before, answer)

    def _truncated(self, prompt: list[int], reserved: int) -> list[int]:
        if self._limit is None:
            return prompt
        length = self._limit - len(self._begin) - reserved
        if length < 1:
            raise DataError(
                "task.max_length",
                f"{self._limit} tokens, and an answer of {reserved} leaves none for its prompt",
                f"at least {len(self._begin) + reserved + 1}, within the model's context",
            )
        return prompt[-length:]


def collate(pairs: Sequence[Pair]) -> Batch:
    """Return the pairs as one batch, in their order."""
    row_of: dict[tuple[int, ...], int] = {}
    tokens: list[tuple[int, int, int, int]] = []
    for owner, pair in enumerate(pairs):
        inputs = (*pair.prompt, *pair.answer[:-1])
        row = row_of.setdefault(inputs, len(row_of))
        first = len(pair.prompt) - 1
        tokens += [(row, first + resolve, token, owner) for resolve, token in enumerate(pair.answer)]
    width = max(map(len, row_of))
    ids = torch.tensor([(*inputs, *(0,) * (width - len(inputs))) for inputs in row_of])
    rows, columns, targets, owners = torch.tensor(tokens).unbind(1)
    lengths, widths = torch.tensor([len(pair.answer) for pair in pairs]), torch.tensor([*map(len, row_of)])
    return Batch(ids, rows, columns, targets, owners, lengths, widths)


def layout(batch: Batch, compared: int = 0) -> Packed:
    """Return how the rows of a batch lie without padding.

    Args:
        batch: the batch.
        compared: the number of answers of each sample, if their scores are only compared with one another; otherwise 0.
    """
    widths = batch.widths.tolist()
    scored = [0] * len(widths)
    for row, column in zip(batch.rows.tolist(), batch.columns.tolist(), strict=True):
        scored[row] = max(scored[row], widths[row] - column)
    order = sorted(range(len(widths)), key=lambda row: (widths[row], scored[row], row))
    counts = Counter((widths[row], scored[row]) for row in order)
    groups = tuple((rows, width, last) for (width, last), rows in counts.items())
    in_order = torch.tensor(order)
    ends = torch.cumsum(batch.widths[in_order], 0)
    positions = torch.cat([torch.arange(widths[row]) for row in order])
    seen = torch.cat([torch.arange(end - scored[row], end) for row, end in zip(order, ends.tolist(), strict=True)])
    starts = torch.empty_like(ends)
    starts[in_order] = ends - batch.widths[in_order]
    places = torch.searchsorted(seen, starts[batch.rows] + batch.columns)
    ids = torch.cat([batch.ids[row, : widths[row]] for row in order])
    columns = choices = None
    if compared and len(places) == len(batch.lengths) and bool((places.view(-1, compared).diff() == 0).all()):
        columns = torch.tensor(sorted(set(batch.targets.tolist())))  # answers of one token each, at one place
        choices = torch.searchsorted(columns, batch.targets.contiguous())
    return Packed(ids[None], positions[None], groups, seen, places, tuple(order), columns, choices)


def chunks(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Group sequences of similar length.

    Args:
        lengths: number of tokens of each sequence.
        tokens: most tokens of a group, padding included; a longer sequence is a group of its own.

    Returns:
        The indices of each group, the longest sequences last.
    """
    groups: list[list[int]] = [[]]
    for index in sorted(range(len(lengths)), key=lambda index: (lengths[index], index)):
        if groups[-1] and (len(groups[-1]) + 1) * lengths[index] > tokens:
            groups.append([])
        groups[-1].append(index)
    return groups
