"""Matrix products of a few rows with weights that never change.

torch's own linear lays the weight out anew at every call, which for the few rows of a round costs as much as the product.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = 32
"""Rows that a packed layout is chosen for; it serves any number."""


def pack(weight: Tensor) -> Tensor:
    """A weight [out, in] as a CPU's kernels want it, a copy that `product` alone can read; elsewhere the weight itself."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return weight.detach()
    if weight.dtype != torch.float32 and not (weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return weight.detach()
    with torch.no_grad():
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None) -> Tensor:
    """x W^T + b of a weight, packed or not: [..., in] -> [..., out], added to `residual` [..., out] where there is one."""
    if not weight.is_mkldnn:
        plain = F.linear(x, weight, bias)
        return plain if residual is None else residual + plain
    if residual is None:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return torch.ops.mkldnn._linear_pointwise.binary(x, residual, weight, bias, "add")
