"""The gated delta rule over trees in one launch: a program has one head of a request and some of its values' width."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

KEYS = 32  # of dk at a time
VALUES = 32


@triton.jit
def _recur_trees(
    queries, keys, values, gates, betas, states, above, outputs, updates, decays,
    count, heads, group, key_width, value_width, scale, epsilon,
    queries_r, queries_n, queries_h, keys_r, keys_n, keys_h, values_r, values_n, values_h,
    gates_r, gates_n, gates_h, betas_r, betas_n, betas_h, states_r, states_h, states_k,
    ROWS: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    request, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    value = tl.program_id(2) * VALUES + tl.arange(0, VALUES)
    row = tl.arange(0, ROWS)
    alive, inside = row < count, (row < count)[:, None] & (value < value_width)[None, :]
    pairs = alive[:, None] & alive[None, :]
    path = tl.load(above + (request * count + row[:, None]) * count + row[None, :], mask=pairs, other=0).to(tl.int1)
    gate = tl.load(gates + request * gates_r + row * gates_n + head * gates_h, mask=alive, other=0.0)
    beta = tl.load(betas + request * betas_r + row * betas_n + head * betas_h, mask=alive, other=0.0).to(tl.float32)
    decay = tl.sum(tl.where(path, gate[None, :], 0.0), axis=1)
    depth = tl.sum(path.to(tl.int32), axis=1) - 1
    key_key = tl.zeros([ROWS, ROWS], tl.float32)
    query_key = tl.zeros([ROWS, ROWS], tl.float32)
    key_state = tl.zeros([ROWS, VALUES], tl.float32)
    query_state = tl.zeros([ROWS, VALUES], tl.float32)
    key_square = tl.zeros([ROWS], tl.float32)
    query_square = tl.zeros([ROWS], tl.float32)
    query_rows = queries + request * queries_r + row[:, None] * queries_n + (head // group) * queries_h
    key_rows = keys + request * keys_r + row[:, None] * keys_n + (head // group) * keys_h
    state = states + request * states_r + head * states_h + value[None, :]
    for start in range(0, key_width, KEYS):
        column = start + tl.arange(0, KEYS)
        some = alive[:, None] & (column < key_width)[None, :]
        q = tl.load(query_rows + column[None, :], mask=some, other=0.0).to(tl.float32)
        k = tl.load(key_rows + column[None, :], mask=some, other=0.0).to(tl.float32)
        mask = (column < key_width)[:, None] & (value < value_width)[None, :]
        s = tl.load(state + column[:, None] * states_k, mask=mask, other=0.0)
        key_key = tl.dot(k, tl.trans(k), key_key, input_precision="ieee")
        query_key = tl.dot(q, tl.trans(k), query_key, input_precision="ieee")
        key_state = tl.dot(k, s, key_state, input_precision="ieee")
        query_state = tl.dot(q, s, query_state, input_precision="ieee")
        key_square += tl.sum(k * k, axis=1)
        query_square += tl.sum(q * q, axis=1)
    key_shrink, query_shrink = tl.rsqrt(key_square + epsilon), tl.rsqrt(query_square + epsilon) * scale
    kept = tl.exp(tl.where(path, decay[:, None] - decay[None, :], float("-inf"))) * key_shrink[None, :]
    system = tl.where(row[:, None] == row[None, :], 0.0, (beta * key_shrink)[:, None] * kept * key_key)
    at = (request * count + row[:, None]) * heads + head
    v = tl.load(
        values + request * values_r + row[:, None] * values_n + head * values_h + value[None, :], mask=inside, other=0.0
    ).to(tl.float32)
    learned = beta[:, None] * (v - (tl.exp(decay) * key_shrink)[:, None] * key_state)
    update = tl.zeros([ROWS, VALUES], tl.float32)
    for level in range(tl.max(depth, axis=0) + 1):  # a row's ancestors are ready when its own depth comes
        ready = learned - tl.dot(system, update, input_precision="ieee")
        update = tl.where((depth == level)[:, None], ready, update)
    output = tl.dot(query_shrink[:, None] * kept * query_key, update, input_precision="ieee")
    output += (tl.exp(decay) * query_shrink)[:, None] * query_state
    place = at * value_width + value[None, :]
    tl.store(outputs + place, output.to(outputs.dtype.element_ty), mask=inside)
    tl.store(updates + place, update * key_shrink[:, None], mask=inside)
    if tl.program_id(2) == 0:
        tl.store(decays + (request * count + row) * heads + head, decay, mask=alive)


def recur_trees(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    betas: Tensor,
    states: Tensor,
    above: Tensor,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `dominotree.kernels.recurrence.recur_trees`. The last dimension of queries, keys, values and states is contiguous."""
    requests, count, heads, value_width = values.shape
    key_width = keys.shape[-1]
    outputs = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    updates = torch.empty(values.shape, dtype=torch.float32, device=values.device)
    decays = torch.empty(requests, count, heads, dtype=torch.float32, device=values.device)
    _recur_trees[requests, heads, triton.cdiv(value_width, VALUES)](
        queries, keys, values, gates, betas, states, above.contiguous(), outputs, updates, decays,
        count, heads, heads // keys.shape[2], key_width, value_width, key_width**-0.5, epsilon,
        *queries.stride()[:3], *keys.stride()[:3], *values.stride()[:3], *gates.stride(), *betas.stride(), *states.stride()[:3],
        ROWS=max(16, triton.next_power_of_2(count)), KEYS=KEYS, VALUES=VALUES,
    )  # fmt: skip
    return outputs, updates, decays
