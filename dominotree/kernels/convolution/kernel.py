"""A causal convolution along the paths of trees in one launch, which makes no windows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

CHANNELS = 256


@triton.jit
def _convolve_trees(
    inputs, window, weight, sources, out, count, channels,
    inputs_r, inputs_n, inputs_c, window_r, window_k, window_c, weight_c, weight_k,
    WIDTH: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    request = row // count
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    alive = channel < channels
    total = tl.zeros([CHANNELS], tl.float32)
    for entry in tl.static_range(WIDTH):
        source = tl.load(sources + row * WIDTH + entry)
        fresh = source >= WIDTH - 1
        new = inputs + request * inputs_r + (source - (WIDTH - 1)) * inputs_n + channel * inputs_c
        old = window + request * window_r + source * window_k + channel * window_c
        brought = tl.load(new, mask=alive & fresh, other=0.0).to(tl.float32)
        brought += tl.load(old, mask=alive & (source < WIDTH - 1), other=0.0).to(tl.float32)
        total += brought * tl.load(weight + channel * weight_c + entry * weight_k, mask=alive, other=0.0).to(tl.float32)
    tl.store(out + row * channels + channel, (total * tl.sigmoid(total)).to(out.dtype.element_ty), mask=alive)


def convolve_trees(inputs: Tensor, window: Tensor, weight: Tensor, sources: Tensor) -> Tensor:
    """See `dominotree.kernels.convolution.convolve_trees`."""
    requests, count, channels = inputs.shape
    out = torch.empty(inputs.shape, dtype=inputs.dtype, device=inputs.device)
    _convolve_trees[requests * count, triton.cdiv(channels, CHANNELS)](
        inputs, window, weight, sources.contiguous(), out, count, channels,
        *inputs.stride(), *window.stride(), *weight.stride(),
        WIDTH=weight.shape[1], CHANNELS=CHANNELS,
    )  # fmt: skip
    return out
