"""The device of this process: where networks, batches and vectors of the problems that it binds lie.

    cpu       NumPy arrays in the processor's memory, folded by Numba; the default
    torch     tensors in the processor's memory: the path of every other device, without one
    cuda      the first GPU; cuda:1 the second
    mps       Apple's GPU

A device is a placement, as a transport is: no scenario names one. x, H and momentum have the same bits on all of them;
what a client measures there depends on the device, its driver and torch.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from seedbus.models.errors import DataError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from seedbus.vector import Vector

VARIABLE = "SEEDBUS_DEVICE"
HOST = "cpu"
_ACCEPTED = "cpu, torch (tensors on the processor), cuda, cuda:N or mps"

_current = ContextVar("_current", default=HOST)  # runs of several threads may be on several devices
ValueT = TypeVar("ValueT")


class GpuMemory(NamedTuple):
    """What is known of a GPU's memory.

    Attributes:
        total: its bytes.
        peak: the most bytes that torch has taken of them for this process, since `release_memory` if it was called.
        free: those that no process has taken.
    """

    total: int
    peak: int
    free: int


def gpu_name(name: str) -> str | None:
    """Return a GPU's name, the same in every process, whatever its number there; None: torch counts no memory of it."""
    if not name.startswith("cuda"):
        return None
    import torch

    return str(torch.cuda.get_device_properties(name).uuid)


def gpu_memory(name: str) -> GpuMemory:
    """Return a reading of the memory of a GPU. The first one starts CUDA in this process, which takes some of it."""
    import torch

    free, total = torch.cuda.mem_get_info(name)
    return GpuMemory(total, torch.cuda.max_memory_reserved(name), free)


def hold_memory(name: str, size: int) -> None:
    """Let torch take so many bytes of a GPU for later tensors of this process."""
    import torch

    if size > 0:
        torch.empty(size, dtype=torch.uint8, device=name)


def release_memory(name: str) -> None:
    """Give back what torch holds of a GPU without using it, and count the peak from here on."""
    import torch

    gc.collect()  # tensors of the run that refer to each other
    torch.cuda.empty_cache()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats(name)


def default_device() -> str:
    """Return the device that SEEDBUS_DEVICE names, or "cpu"."""
    return os.environ.get(VARIABLE) or HOST


def check_device(name: str, source: str = "--device", *, is_here: bool = True) -> None:
    """Raise `DataError` unless this process can use a device.

    Args:
        name: the device.
        source: where it was named.
        is_here: whether this process is to use it; if not, only its name is checked.
    """
    if not re.fullmatch(r"cpu|torch|mps|cuda(:\d{1,3})?", str(name)):
        raise DataError(source, repr(name), _ACCEPTED)
    if name in (HOST, "torch") or not is_here:
        return
    import torch

    if name == "mps":
        if not torch.backends.mps.is_available():
            raise DataError(source, "mps, which this machine or this torch does not have", _ACCEPTED)
        return
    if not torch.cuda.is_available():
        is_built = torch.version.cuda or torch.version.hip
        why = "no GPU can be used here" if is_built else "this torch is built for no GPU"
        raise DataError(source, f"{name}, and {why}", "cpu, or a machine with a GPU and torch for it")
    number, count = int(name.partition(":")[2] or 0), torch.cuda.device_count()
    if number >= count:
        raise DataError(source, f"{name}, and there are {count} GPUs here", f"cuda:0 to cuda:{count - 1}")


@contextmanager
def on_device(name: str) -> Iterator[None]:
    """Within this context problems are bound on a device. Raises `DataError` if it cannot be used."""
    check_device(name)
    before = _current.get()
    _current.set(name)
    if name not in (HOST, "torch"):
        _make_deterministic()
    try:
        yield
    finally:
        _current.set(before)


def device_text(names: Sequence[str]) -> str:
    """Return what of devices decides the bits of losses, as text; "cpu" for the processor.

    Of GPUs on other machines, where a launcher starts the workers, only the names that they have there are known.
    """
    if set(names) == {HOST}:
        return HOST
    import torch

    def described(name: str) -> str:
        return f"{name} ({torch.cuda.get_device_name(name)})" if is_there and name.startswith("cuda") else name

    is_there = torch.cuda.is_available()
    on_gpu = is_there and any(name.startswith("cuda") for name in names)
    rocm, versions = torch.version.hip, [f"torch {torch.__version__}"]
    if on_gpu:
        versions += [f"ROCm {rocm}"] if rocm else [f"CUDA {torch.version.cuda}", f"driver {driver_version()}"]
    return ", ".join([*map(described, dict.fromkeys(names)), *versions])


def driver_version() -> str:
    """Return the version of NVIDIA's driver, as its management library (NVML) tells it; "unknown" without that."""
    text = ctypes.create_string_buffer(80)  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        failed = library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text)))
    except (OSError, AttributeError):
        return "unknown"
    return "unknown" if failed else text.value.decode()


def devices_of(text: str, processes: int = 1, *, are_here: bool = True) -> tuple[str, ...]:
    """Return the devices in the value of an option or of SEEDBUS_DEVICE, which commas separate. Raises `DataError`.

    Args:
        text: the option's value; "" if it is not given.
        processes: the number of processes that take the devices in turn.
        are_here: whether this machine must have them.
    """
    source = "--device" if text else VARIABLE
    names = tuple(part.strip() for part in (text or default_device()).split(","))
    for name in names:
        check_device(name, source, is_here=are_here)
    if len(names) > processes:
        computing = "one process computes" if processes == 1 else f"{processes} processes compute"
        raise DataError(source, ",".join(names), f"{processes} at most, because {computing}")
    return names


def torch_device() -> torch.device | None:
    """Return the torch device on which this process binds problems; None if they use NumPy arrays."""
    name = _current.get()
    if name == HOST:
        return None
    import torch

    return torch.device("cpu" if name == "torch" else name)


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that a GPU has free for this process; None: a device in the processor's own memory.

    What torch holds of a GPU without using it is free as well.
    """
    import torch

    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type == "mps":
        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return None


def moved(value: ValueT, device: torch.device | None) -> ValueT:
    """Return a tensor, or a structure of tensors, on a device; None: as it is.

    To a GPU they are copied from pinned memory, and the host does not wait for it. torch keeps that memory until the
    copy is done.
    """
    if device is None:
        return value
    from torch import Tensor
    from torch.utils._pytree import tree_map

    def there(each: Any) -> Any:
        if not isinstance(each, Tensor):
            return each
        if device.type == "cuda" and each.device.type == "cpu":
            return each.pin_memory().to(device, non_blocking=True)
        return each.to(device)

    on_device: Any = tree_map(there, value)
    return on_device  # type: ignore[no-any-return]


def vector_on(vector: Vector, device: torch.device | None) -> Vector:
    """Return a vector in the memory of a device; None: as it is."""
    if device is None:
        return vector
    from seedbus.tensors import TensorVector, tensor_of

    on_device: Any = TensorVector(tensor_of(vector, device))
    return on_device  # type: ignore[no-any-return]


def _make_deterministic() -> None:
    """Make torch repeat its results on one device: no TF32, no choice of algorithms by time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first product is computed
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    # nothing reads it, and filling it takes a pass
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if hasattr(torch.backends.cudnn, "conv"):  # since 2.9 "not allowed" takes what torch.backends.fp32_precision says
        for layers in (torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
            layers.fp32_precision = "ieee"  # type: ignore[union-attr]
    torch.backends.cudnn.benchmark = False
    # all parameters are parts of one vector, and cuDNN copies those of a recurrent layer for each call
    warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")


@contextmanager
def repeatable_gradients(module: nn.Module, device: torch.device | None) -> Iterator[None]:
    """Within this context a module on a GPU has gradients, and they repeat their bits.

    Those of torch's fast kernels of attention do not repeat. cuDNN's recurrent layers have none in evaluation mode, and
    no second ones in any.
    """
    if device is None or device.type != "cuda":
        yield
        return
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    cudnn: Any = torch.backends.cudnn
    before = cudnn.enabled
    cudnn.enabled = before and not any(isinstance(layer, torch.nn.RNNBase) for layer in module.modules())
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        cudnn.enabled = before


def placed_beside(problem: Any) -> Callable[[Vector], Vector]:
    """Return a function that moves vectors to where a problem computes: its `device`, or else that of its point.

    A large model is not asked for its point, since with `revert: light` it needs no memory for one.
    """
    if hasattr(problem, "device"):
        return lambda vector: vector_on(vector, problem.device)
    tensor = getattr(problem.objective(0, 0).point, "tensor", None)
    return lambda vector: vector_on(vector, None if tensor is None else tensor.device)
