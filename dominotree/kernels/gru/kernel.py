"""The GRU step in one launch: look-up of inputs and parents, the product with all three gates, and the gates."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LANES = 16  # the least that a matrix product takes
UNITS = 32
STATE = 64


@triton.jit
def _gru_step(
    inputs, rows, states, parents, weight_hh, out,
    lanes, count, size,
    inputs_t, inputs_g, rows_r, rows_n, states_r, states_m, states_g, parents_r, parents_n, weight_u, weight_g,
    LANES: tl.constexpr, UNITS: tl.constexpr, STATE: tl.constexpr,
):  # fmt: skip
    flat = (tl.program_id(0) * LANES + tl.arange(0, LANES)).to(tl.int64)
    alive = flat < count
    request, lane = flat // lanes, flat % lanes
    parent = tl.load(parents + request * parents_r + lane * parents_n, mask=alive, other=0)
    parent_state = states + request * states_r + parent * states_m
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    in_state = unit < size
    weight = weight_hh + unit[None, :].to(tl.int64) * weight_u
    gate = size * weight_u
    reset = tl.zeros([LANES, UNITS], tl.float32)
    update = tl.zeros([LANES, UNITS], tl.float32)
    hidden = tl.zeros([LANES, UNITS], tl.float32)
    for start in range(0, size, STATE):
        feature = start + tl.arange(0, STATE)
        mask = (feature < size)[:, None] & in_state[None, :]
        column = weight + feature[:, None] * weight_g
        state = tl.load(
            parent_state[:, None] + feature[None, :] * states_g, mask=alive[:, None] & (feature < size)[None, :], other=0.0
        )
        reset = tl.dot(state, tl.load(column, mask=mask, other=0.0), reset, input_precision="ieee")
        update = tl.dot(state, tl.load(column + gate, mask=mask, other=0.0), update, input_precision="ieee")
        hidden = tl.dot(state, tl.load(column + 2 * gate, mask=mask, other=0.0), hidden, input_precision="ieee")
    mask = alive[:, None] & in_state[None, :]
    row = tl.load(rows + request * rows_r + lane * rows_n, mask=alive, other=0)
    given = inputs + row[:, None] * inputs_t + unit[None, :] * inputs_g
    step = size * inputs_g
    reset = tl.sigmoid(reset + tl.load(given, mask=mask, other=0.0).to(tl.float32))
    update = tl.sigmoid(update + tl.load(given + step, mask=mask, other=0.0).to(tl.float32))
    new = tl.load(given + 2 * step, mask=mask, other=0.0).to(tl.float32) + reset * hidden
    new = 2.0 * tl.sigmoid(2.0 * new) - 1.0  # tanh
    old = tl.load(parent_state[:, None] + unit[None, :] * states_g, mask=mask, other=0.0).to(tl.float32)
    stepped = (new + update * (old - new)).to(out.dtype.element_ty)
    tl.store(out + flat[:, None] * size + unit[None, :], stepped, mask=mask)


def gru_step(inputs: Tensor, rows: Tensor, states: Tensor, parents: Tensor, weight_hh: Tensor) -> Tensor:
    """See `dominotree.kernels.gru.gru_step`."""
    (requests, lanes), size = rows.shape, states.shape[-1]
    out = torch.empty(requests, lanes, size, dtype=states.dtype, device=states.device)
    _gru_step[triton.cdiv(requests * lanes, LANES), triton.cdiv(size, UNITS)](
        inputs, rows, states, parents, weight_hh, out,
        lanes, requests * lanes, size,
        *inputs.stride(), *rows.stride(), *states.stride(), *parents.stride(), *weight_hh.stride(),
        LANES=LANES, UNITS=UNITS, STATE=STATE,
    )  # fmt: skip
    return out
