"""A causal convolution along the paths of trees (Section 4.5.4)."""

from __future__ import annotations

from torch import Tensor

from dominotree.kernels.convolution.reference import convolve_trees as reference
from dominotree.kernels.dispatch import on_gpu


def convolve_trees(inputs: Tensor, window: Tensor, weight: Tensor, sources: Tensor) -> Tensor:
    """SiLU of a depthwise convolution [R, n, C] whose window, of K entries, is each row's own path.

    inputs [R, n, C]: what the rows bring. window [R, K - 1, C]: what the context's last rows brought. weight [C, K], the newest
    last. sources [R, n, K]: see `Ancestry`. Half precision is computed in fp32.
    """
    if on_gpu(inputs):
        from dominotree.kernels.convolution.kernel import convolve_trees as fused

        return fused(inputs, window, weight, sources)
    return reference(inputs, window, weight, sources)
