"""The device that tests use: SEEDBUS_TEST_DEVICE, by default torch's path on the processor."""

from __future__ import annotations

import os
from typing import Any

from seedbus.tensors import placed

DEVICE = os.environ.get("SEEDBUS_TEST_DEVICE", "torch")
IS_PROCESSOR = DEVICE == "torch"
"""Whether losses are computed by the operations, and so have the bits, of a run without a device."""
TORCH_DEVICE = "cpu" if IS_PROCESSOR else DEVICE


def there(vector: Any) -> Any:
    """Return a copy of a vector in the device's memory."""
    return placed(vector, TORCH_DEVICE)
