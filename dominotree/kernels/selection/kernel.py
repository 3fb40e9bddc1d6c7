"""Selection from the ledger, one program a request: a running top B over chunks, then the parents' new places."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 1024


@triton.jit
def _select_tree(
    scores, tokens, parents, depths, log_probs, moved,
    out_tokens, out_parents, out_depths, out_log_probs, out_valid,
    length, budget,
    scores_r, scores_l, tokens_r, tokens_l, parents_r, parents_l, depths_l, log_probs_r, log_probs_l,
    CHUNK: tl.constexpr, BUDGET: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0).to(tl.int64)
    # One integer an entry, that sorts as the entry does: the score's bits in an order that integers keep, then, turned
    # round, the place in the ledger. The least integer is no entry.
    best = tl.full([BUDGET], -0x8000000000000000, tl.int64)
    for start in range(0, length, CHUNK):
        entry = start + tl.arange(0, CHUNK)
        score = tl.load(scores + request * scores_r + entry * scores_l, mask=entry < length, other=0.0).to(tl.float32)
        bits = (score + 0.0).to(tl.int32, bitcast=True)  # + 0.0: minus zero equals zero
        bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        key = (bits.to(tl.int64) << 32) | (0x7FFFFFFF - entry).to(tl.int64)
        key = tl.topk(tl.where(entry < length, key, -0x8000000000000000), BUDGET)
        best = tl.topk(tl.reshape(tl.join(best, key), [2 * BUDGET]), BUDGET)
    entry = 0x7FFFFFFF - (best & 0x7FFFFFFF)
    node = tl.arange(0, BUDGET)
    found = (node < budget) & (best != -0x8000000000000000)
    valid = found & (tl.load(scores + request * scores_r + entry * scores_l, mask=found, other=0.0) != float("-inf"))

    tl.store(moved + request * length + entry, node, mask=valid)
    tl.debug_barrier()  # what one thread has stored there, others read
    parent = tl.load(parents + request * parents_r + entry * parents_l, mask=valid, other=-1)
    below = valid & (parent >= 0)
    parent = tl.load(moved + request * length + parent, mask=below, other=-1)
    token = tl.load(tokens + request * tokens_r + entry * tokens_l, mask=valid, other=0)
    depth = tl.load(depths + entry * depths_l, mask=valid, other=0)
    log_prob = tl.load(log_probs + request * log_probs_r + entry * log_probs_l, mask=valid, other=float("-inf"))
    out = request * budget + node
    inside = node < budget
    tl.store(out_tokens + out, token, mask=inside)
    tl.store(out_parents + out, parent.to(tl.int64), mask=inside)
    tl.store(out_depths + out, depth, mask=inside)
    tl.store(out_log_probs + out, log_prob, mask=inside)
    tl.store(out_valid + out, valid, mask=inside)


def select_tree(
    scores: Tensor, tokens: Tensor, parents: Tensor, depths: Tensor, log_probs: Tensor, budget: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See `dominotree.kernels.selection.select_tree`."""
    requests, length = scores.shape
    integers = (torch.empty(requests, budget, dtype=torch.int64, device=scores.device) for _ in range(3))
    out_tokens, out_parents, out_depths = integers
    out_log_probs = torch.empty(requests, budget, dtype=log_probs.dtype, device=scores.device)
    out_valid = torch.empty(requests, budget, dtype=torch.bool, device=scores.device)
    moved = torch.empty(requests, length, dtype=torch.int32, device=scores.device)
    padded = max(2, triton.next_power_of_2(budget))
    _select_tree[(requests,)](
        scores, tokens, parents, depths, log_probs, moved,
        out_tokens, out_parents, out_depths, out_log_probs, out_valid,
        length, budget,
        *scores.stride(), *tokens.stride(), *parents.stride(), *depths.stride(), *log_probs.stride(),
        CHUNK=max(padded, min(CHUNK, triton.next_power_of_2(length))), BUDGET=padded,
    )  # fmt: skip
    return out_tokens, out_parents, out_depths, out_log_probs, out_valid
