"""The accepted paths taken into the recurrent states, in one launch for all layers: each state is read and written once."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

VALUES = 32


@triton.jit
def _absorb_paths(
    states, keys, updates, decays, rows, counts, heads, group, limit, key_width, value_width,
    states_l, states_r, states_h, states_k, keys_l, keys_r, keys_n, keys_g,
    updates_l, updates_r, updates_n, updates_h, decays_l, decays_r, decays_n, decays_h, rows_r, rows_p,
    KEYS: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    layer, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    request = tl.program_id(1).to(tl.int64)
    key, value = tl.arange(0, KEYS), tl.program_id(2) * VALUES + tl.arange(0, VALUES)
    count = tl.minimum(tl.load(counts + request), limit)
    decay = decays + layer * decays_l + request * decays_r + head * decays_h
    path = rows + request * rows_r
    last = tl.load(path + (count - 1) * rows_p, mask=count > 0, other=0)
    whole = tl.load(decay + last * decays_n, mask=count > 0, other=0.0)
    state = states + layer * states_l + request * states_r + head * states_h + key[:, None] * states_k + value[None, :]
    inside = (key < key_width)[:, None] & (value < value_width)[None, :]
    total = tl.load(state, mask=inside, other=0.0) * tl.exp(whole)
    key_row = keys + layer * keys_l + request * keys_r + (head // group) * keys_g + key
    update_row = updates + layer * updates_l + request * updates_r + head * updates_h + value
    for slot in range(count):
        row = tl.load(path + slot * rows_p)
        kept = tl.exp(whole - tl.load(decay + row * decays_n))
        k = tl.load(key_row + row * keys_n, mask=key < key_width, other=0.0).to(tl.float32)
        u = tl.load(update_row + row * updates_n, mask=value < value_width, other=0.0)
        total += (kept * k)[:, None] * u[None, :]
    tl.store(state, total, mask=inside)


def absorb_paths(states: Tensor, keys: Tensor, updates: Tensor, decays: Tensor, rows: Tensor, counts: Tensor) -> None:
    """See `dominotree.kernels.absorption.absorb_paths`. The last dimension of states, keys and updates is contiguous."""
    layers, requests, heads, key_width, value_width = states.shape
    _absorb_paths[layers * heads, requests, triton.cdiv(value_width, VALUES)](
        states, keys, updates, decays, rows, counts.contiguous(),
        heads, heads // keys.shape[3], rows.shape[1], key_width, value_width,
        *states.stride()[:4], *keys.stride()[:4], *updates.stride()[:4], *decays.stride(), *rows.stride(),
        KEYS=triton.next_power_of_2(key_width), VALUES=VALUES,
    )  # fmt: skip
