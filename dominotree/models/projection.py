"""Linear layers whose weights never change."""

from __future__ import annotations

from torch import Tensor, nn

from dominotree.kernels.packed import pack, product


class Projection(nn.Module):
    """x W^T + b of frozen weights. Where `pack` makes a copy of the weight, `weight` is None."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """weight: [out, in]; bias: [out]."""
        super().__init__()
        self.packed = pack(weight)
        self.weight = None if self.packed.is_mkldnn else self.packed
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[..., in] -> [..., out], added to `residual` [..., out] where there is one."""
        return product(x, self.packed, self.bias, residual)


def freeze_linears(module: nn.Module) -> None:
    """Put a `Projection` in the place of every linear layer in `module`, which can no longer be trained or saved."""
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, Projection(child.weight, child.bias))
        else:
            freeze_linears(child)
