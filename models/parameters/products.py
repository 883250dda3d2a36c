"""Products of activations and a weight, by oneDNN where that is faster than torch's own.

On an AMD EPYC (Zen 5), torch's own, which are MKL's, have half their rate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import linear
from torch.overrides import handle_torch_function, has_torch_function


def product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return inputs · weightᵀ + bias, by oneDNN where that is float32 on a processor, without forward derivatives.

    Args:
        inputs: float32 [..., in].
        weight: float32 [out, in].
        bias: float32 [out].
    """
    if has_torch_function((inputs, weight)):
        replaced: Tensor = handle_torch_function(product, (inputs, weight), inputs, weight, bias)
        return replaced
    is_float = inputs.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if inputs.device.type != "cpu" or not is_float or not has_onednn or _has_tangent(inputs, weight, bias):
        return linear(inputs, weight, bias)
    if torch.is_grad_enabled() and (inputs.requires_grad or weight.requires_grad):
        differentiable: Tensor = linear(inputs.to_mkldnn(), weight, bias).to_dense()
        return differentiable
    result: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")  # the same, uncopied
    return result


def _has_tangent(*values: Tensor | None) -> bool:
    """Return whether a value carries a forward derivative, which oneDNN's products would drop."""
    torch_ad: Any = forward_ad  # without types
    return any(torch_ad.unpack_dual(value).tangent is not None for value in values if value is not None)
