"""Matrix products of a few rows with weights that never change."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS = 32
"""Rows that a packed layout is chosen for; it serves any number."""


class Projection(nn.Module):
    """x W^T + b of frozen weights, which a CPU gets laid out for its kernels once.

    torch's own linear lays the weight out anew at every call, which for the few rows of a round costs as much as the product.
    On a CPU the packed weight is a copy; `weight` is then None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """weight: [out, in]; bias: [out]."""
        super().__init__()
        self.packed = _packed(weight)
        self.weight = weight.detach() if self.packed is None else None
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[..., in] -> [..., out], added to `residual` [..., out] where there is one."""
        if self.packed is None:
            product = F.linear(x, self.weight, self.bias)
            return product if residual is None else residual + product
        if residual is None:
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.packed, self.bias, "add")


def _packed(weight: Tensor) -> Tensor | None:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    if weight.dtype != torch.float32 and not (weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return None
    with torch.no_grad():
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)


def freeze_linears(module: nn.Module) -> None:
    """Put a `Projection` in the place of every linear layer in `module`, which can no longer be trained or saved."""
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, Projection(child.weight, child.bias))
        else:
            freeze_linears(child)
