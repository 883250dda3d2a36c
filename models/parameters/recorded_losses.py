"""Losses of a small network that are recorded once and launched again as a whole: CUDA graphs.

A small network leaves a GPU idle while the host launches its operations one by one. A graph has the launches of one
call, with the addresses of what they read and write. So a batch is copied into the tensors that were recorded, and
points are written where they always lie. The same kernels run on the same numbers, so losses have the bits of a call
that is not recorded; each recording is compared with one before it is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from seedbus.models.task import Note

SMALL = 2**21
"""Coordinates of a network at most: with more, its kernels take longer than their launches."""
MOST = 32
"""Recordings that are kept: each has memory of its own. Batches of further shapes are computed without one."""
WARM_UPS = 3
"""Calls before a recording, in which libraries choose and load what they need."""

Loss = Callable[[Tensor, Tensor], Tensor]
Launch = Callable[[], Tensor]
Capture = Callable[[Launch], Launch]
"""Records a call, and returns what launches it again: the result is always in the same tensor."""


@dataclass(slots=True)
class _Recorded:
    """A recorded call.

    Attributes:
        inputs: the tensor from which it takes its inputs.
        labels: the one from which it takes its labels.
        replay: launches it.
        batch: the inputs that were copied last.
    """

    inputs: Tensor
    labels: Tensor
    replay: Launch
    batch: Tensor | None = None


class RecordedLosses:
    """Losses by recordings, one for each shape of a batch and number of points. The points may not move in memory.

    Args:
        capture: records a call.
        note: is told if a call cannot be recorded; it is then computed as if there were no recordings.
    """

    def __init__(self, capture: Capture, note: Note) -> None:
        self._capture = capture
        self._note = note
        self._recorded: dict[tuple[object, ...], _Recorded | None] = {}

    def losses(self, loss: Loss, count: int, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the losses of a batch, in a tensor of their own.

        Args:
            loss: computes them at the points; the same function for the same count.
            count: number of points.
            inputs: of the batch.
            labels: of the batch.
        """
        key = (count, *_layout(inputs), *_layout(labels))
        if key not in self._recorded and len(self._recorded) < MOST:
            self._recorded[key] = self._record(loss, inputs, labels)
        recorded = self._recorded.get(key)
        if recorded is None:
            return loss(inputs, labels)
        if recorded.batch is not inputs:  # the points of a step have one batch
            recorded.inputs.copy_(inputs)
            recorded.labels.copy_(labels)
            recorded.batch = inputs
        return recorded.replay().clone()

    def _record(self, loss: Loss, inputs: Tensor, labels: Tensor) -> _Recorded | None:
        own = inputs.clone(), labels.clone()
        try:
            replay = self._capture(lambda: loss(*own))
            found, expected = replay().clone(), loss(inputs, labels)
        except RuntimeError as error:  # of CUDA, or no memory for a recording; the loss itself may have enough
            self._note("graphs", not_used=str(error).strip().partition("\n")[0])
            return None
        if not torch.equal(found.view(torch.int32), expected.view(torch.int32)):  # as bits, for a loss may be NaN
            self._note("graphs", not_used=f"a recorded loss is {found.tolist()}, and {expected.tolist()} without")
            return None
        return _Recorded(*own, replay)


def capture_on(device: torch.device | None) -> Capture | None:
    """Return what records calls on a device; None: nothing does."""
    return _cuda_capture(device) if device is not None and device.type == "cuda" else None


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """Return the stream of a device's recordings: one for all runs, because torch keeps a workspace of each."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _cuda_capture(device: torch.device) -> Capture:
    def capture(launch: Launch) -> Launch:
        with torch.cuda.device(device):
            stream = _stream(torch.cuda.current_device())
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS - 1):
                    launch()
                with _no_waiting():  # waiting for the GPU ends a recording, and spoils torch's allocator
                    launch()
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                # not by `torch.cuda.graph`, which would give memory back that other processes then take
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    result = launch()
                except BaseException:
                    with suppress(RuntimeError):  # which would say no more than that there was one before
                        graph.capture_end()
                    raise
                graph.capture_end()
            torch.cuda.current_stream().wait_stream(stream)

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay

    return capture


@contextmanager
def _no_waiting() -> Iterator[None]:
    """In this context an operation that waits for the GPU, such as reading a number from it, raises `RuntimeError`."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _layout(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.shape, tensor.stride()
