"""The last blocks of a causal model, and the states with which they begin, which are computed once for each row.

Where only the last N of L blocks are trained, what enters block L − N is a function of frozen weights and of a row's
tokens. It is kept, 4 · width bytes a token, and a loss computes the last N blocks and the head.

The rule for equal bits: the states of a row are those of the row alone, without padding, [1, tokens]. So they are the
same whichever batch the row comes with, and whether they were kept or are computed anew. What is kept is never given
up for another row: once the memory is full, further rows are computed each time. (An evaluation reads all its rows in
the same order, of which a cache of the last ones used would have none when it needs them.) What fits also stands in a
file that all processes of the machine share; see `states_file`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from seedbus.models.errors import DataError
from seedbus.models.text.shapes import Shapes

if TYPE_CHECKING:  # settings are read where no network is
    from torch import Tensor, nn

    from seedbus.models.text.states_file import StatesFile

_BLOCK = re.compile(r"(?:^|^(.*?)\.)(\d{1,9})\.")


def last_blocks(names: Iterable[str], count: int) -> set[str]:
    """Return the names of the weights of the last blocks: those with the highest numbers in the longest list.

    Of nested numbers the first one counts.

    Raises:
        DataError: there are fewer blocks.
    """
    _, numbers = _numbered(names)
    last = sorted(set(numbers.values()))
    if count > len(last):
        raise DataError("task.train.blocks", str(count), f"at most {len(last)}, the model's blocks")
    return {name for name, number in numbers.items() if number in last[-count:]}


def computed_shapes(shapes: Shapes, count: int) -> Shapes:
    """Return the shapes of the weights that a loss computes with where the last blocks are trained."""
    last, (_, numbers) = last_blocks(shapes, count), _numbered(shapes)
    return {name: shape for name, shape in shapes.items() if name in last or name not in numbers}


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return the blocks of a model, in their order."""
    name, _ = _numbered(name for name, _ in model.named_parameters())
    blocks: Any = model.get_submodule(name)
    return list(blocks)


def _numbered(names: Iterable[str]) -> tuple[str, Mapping[str, int]]:
    """Return the name of the longest list of numbered parts, and the number of the part that each weight lies in."""
    matches = {name: match for name in names if (match := _BLOCK.match(name))}
    lists = Counter(match[1] for match in matches.values())
    longest = max(lists, key=lambda each: lists[each], default=None)
    return longest or "", {name: int(match[2]) for name, match in matches.items() if match[1] == longest}


class _Reached(Exception):
    """Carries what enters the first trained block out of a forward pass, which ends there."""

    def __init__(self, states: Tensor) -> None:
        self.states = states


class KeptStates:
    """Computes and keeps what enters the first trained block of a causal model. Not thread-safe."""

    def __init__(self, model: Any, count: int, most_bytes: int, file: Callable[[], StatesFile] | None = None) -> None:
        """Take a model whose parameters outside the last blocks are frozen.

        Args:
            model: of transformers.
            count: the number of its last blocks that are trained.
            most_bytes: of the states that are kept.
            file: returns the file where other processes find them too, called at the first row; None: nowhere.

        Raises:
            DataError: it has no such list of blocks.
        """
        self._model = model
        self._most_bytes = most_bytes
        self._open = file
        self._bytes = 0
        self._kept: dict[bytes, Tensor] = {}
        self._given: Tensor | None = None  # what the first trained block is to begin with
        self._seeks = False
        blocks = blocks_of(model)
        for block in blocks[:-count]:
            block.forward = self._skipped_if_given(block.forward)
        blocks[-count].register_forward_pre_hook(self._enter, with_kwargs=True)

    def of(self, ids: Tensor, widths: Tensor) -> Tensor:
        """Return the states of rows, float32 [rows, width, hidden]; those of padding are 0.

        Args:
            ids: tokens, int64 [rows, width].
            widths: the number of tokens of each row, int64 [rows].

        Raises:
            DataError: the states depend on trained weights.
        """
        import torch
        from torch.nn.functional import pad

        return torch.stack([pad(each, (0, 0, 0, ids.shape[1] - len(each))) for each in self.by_row(ids, widths)])

    def by_row(self, ids: Tensor, widths: Tensor) -> list[Tensor]:
        """Return the states of rows, float32 [tokens, hidden] each; see `of`. Raises `DataError`."""
        return [self._of_row(row[:width]) for row, width in zip(ids.cpu(), widths.tolist(), strict=True)]

    @contextmanager
    def given(self, states: Tensor | None) -> Iterator[None]:
        """Within this context the model's forward passes begin with these states; None: with the first block."""
        self._given = states
        try:
            yield
        finally:
            self._given = None

    def check(self, loss: Callable[[Tensor, Tensor | None], Tensor], tokens: int) -> None:
        """Compare the logits of a whole forward pass with those of one that begins with kept states.

        Args:
            loss: returns the logits of a row of tokens, int64 [1, n], which begins with the states, if there are any.
            tokens: the size of the vocabulary.

        Raises:
            DataError: they differ, or the states depend on trained weights.
        """
        import torch

        ids = (torch.arange(8, device=self._model.device) % tokens)[None]
        with torch.inference_mode():
            whole = loss(ids, None)
            if not torch.equal(whole, loss(ids, self._computed(ids[0])[None])):
                raise self._refused("whose blocks hand on more than their states")

    def _of_row(self, row: Tensor) -> Tensor:
        """Return the states of a row of tokens, float32 [tokens, hidden]."""
        key = row.numpy().tobytes()
        if (kept := self._kept.get(key)) is not None:
            return kept
        states = self._filed(key, row)
        if self._bytes + states.nbytes <= self._most_bytes:
            self._kept[key] = states
            self._bytes += states.nbytes
        return states

    def _filed(self, key: bytes, row: Tensor) -> Tensor:
        if self._file is None:
            return self._computed(row)
        if (found := self._file.get(key)) is None:
            found = self._computed(row)
            self._file.put(key, found)
        return found

    @cached_property
    def _file(self) -> StatesFile | None:
        return None if self._open is None else self._open()

    def _computed(self, row: Tensor) -> Tensor:
        self._seeks = True
        try:  # outside of inference mode, whose tensors cannot have gradients: these are kept for `gradient` too
            import torch

            with torch.inference_mode(False), torch.enable_grad():
                self._model(input_ids=row[None].to(self._model.device), use_cache=False)
        except _Reached as reached:
            if reached.states.requires_grad:
                raise self._refused("which uses trained weights before them") from None
            return reached.states[0]
        finally:
            self._seeks = False
        raise self._refused("which does not call its blocks")

    def _refused(self, why: str) -> DataError:
        found = f"last-blocks, and {type(self._model).__name__}, {why}"
        return DataError("task.train.kind", found, "full, lora or layernorm")

    def _enter(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Give the first trained block its states, or take those that come to it."""
        own = args[0] if args else kwargs["hidden_states"]
        if self._seeks:
            raise _Reached(own)
        if self._given is None:
            return None
        return ((self._given, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": self._given})

    def _skipped_if_given(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a block's forward pass that hands its states on where those of a later block are given."""
        others: int | None = None  # what the block returns beside its states; None: states alone

        def skipped(*args: Any, **kwargs: Any) -> Any:
            nonlocal others
            if self._given is None:
                result = forward(*args, **kwargs)
                others = len(result) - 1 if isinstance(result, tuple) else None
                return result
            states = args[0] if args else kwargs["hidden_states"]
            return states if others is None else (states, *(None,) * others)

        return skipped
