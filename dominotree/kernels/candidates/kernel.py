"""Scoring of candidates in one launch: both products, the normaliser and the top k stay on the chip."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LANES = 16  # the least that a matrix product takes
TILE = 256  # bytes of a tile's row: a program streams W1 and the candidates' rows, so few, large tiles
ROWS = 64 * 1024  # bytes of the candidates' rows at a time, which fit the shared memory of every recent GPU


@triton.jit
def _score_candidates(
    states, from_state, from_z, base, rows, tail, places, log_probs,
    lanes, state_size, bottleneck_size, width, children,
    states_r, states_n, states_g, from_state_e, from_state_g, from_z_r, from_z_e, base_r, base_m, rows_r, rows_m, rows_e,
    LANES: tl.constexpr, STATE: tl.constexpr, BOTTLENECK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    candidate = tl.arange(0, WIDTH)
    corrected = tl.zeros([LANES, WIDTH], tl.float32)
    for first in range(0, bottleneck_size, BOTTLENECK):
        unit = first + tl.arange(0, BOTTLENECK)
        in_bottleneck = unit < bottleneck_size
        hidden = tl.zeros([LANES, BOTTLENECK], tl.float32)
        for start in range(0, state_size, STATE):
            feature = start + tl.arange(0, STATE)
            state = tl.load(
                states + request * states_r + lane[:, None] * states_n + feature[None, :] * states_g,
                mask=(lane < lanes)[:, None] & (feature < state_size)[None, :],
                other=0.0,
            )
            weight = tl.load(
                from_state + feature[:, None] * from_state_g + unit[None, :].to(tl.int64) * from_state_e,
                mask=(feature < state_size)[:, None] & in_bottleneck[None, :],
                other=0.0,
            )
            hidden = tl.dot(state, weight, hidden, input_precision="ieee")
        hidden += tl.load(from_z + request * from_z_r + unit * from_z_e, mask=in_bottleneck, other=0.0).to(tl.float32)[None, :]
        hidden *= tl.sigmoid(hidden)  # where the bottleneck ends, 0
        row = tl.load(
            rows + request * rows_r + candidate[None, :].to(tl.int64) * rows_m + unit[:, None] * rows_e,
            mask=(candidate < width)[None, :] & in_bottleneck[:, None],
            other=0.0,
        )
        corrected = tl.dot(hidden.to(row.dtype), row, corrected, input_precision="ieee")
    floor = tl.load(base + request * base_r + candidate * base_m, mask=candidate < width, other=float("-inf")).to(tl.float32)
    corrected += floor[None, :]

    outside = tl.load(tail + request).to(tl.float32)
    most = tl.maximum(tl.max(corrected, axis=1), outside)
    normaliser = most + tl.log(tl.sum(tl.exp(corrected - most[:, None]), axis=1) + tl.exp(outside - most))

    # Dead candidates are chosen too, when nothing better is left, and each once: so it is noted who is still free.
    free = (candidate < width)[None, :] & (lane[:, None] >= 0)
    out = (request * lanes + lane) * children
    for rank in range(children):
        best = tl.max(tl.where(free, corrected, float("-inf")), axis=1)
        equal = free & (corrected == best[:, None])
        place = tl.minimum(tl.min(tl.where(equal, candidate[None, :], WIDTH), axis=1), width - 1)
        free = free & (candidate[None, :] != place[:, None])
        tl.store(places + out + rank, place.to(tl.int64), mask=lane < lanes)
        tl.store(log_probs + out + rank, tl.where(best == float("-inf"), best, best - normaliser), mask=lane < lanes)


def score_candidates(
    states: Tensor, from_state: Tensor, from_z: Tensor, base: Tensor, rows: Tensor, tail: Tensor, children: int
) -> tuple[Tensor, Tensor]:
    """See `dominotree.kernels.candidates.score_candidates`; of equal candidates the lower place comes first."""
    requests, lanes, state_size = states.shape
    width = base.shape[1]
    if children > width:
        raise ValueError(f"{children} children cannot be chosen among {width} candidates")
    places = torch.empty(requests, lanes, children, dtype=torch.int64, device=states.device)
    log_probs = torch.empty(requests, lanes, children, dtype=torch.float32, device=states.device)
    padded, item = max(16, triton.next_power_of_2(width)), rows.element_size()
    bottleneck = min(TILE // item, ROWS // (padded * item), max(16, triton.next_power_of_2(from_state.shape[0])))
    _score_candidates[requests, triton.cdiv(lanes, LANES)](
        states, from_state, from_z, base, rows, tail.contiguous(), places, log_probs,
        lanes, state_size, from_state.shape[0], width, children,
        *states.stride(), *from_state.stride(), *from_z.stride(), *base.stride(), *rows.stride(),
        LANES=LANES, STATE=TILE // item, BOTTLENECK=bottleneck, WIDTH=padded,
        num_warps=max(4, padded // 64), num_stages=2,
    )  # fmt: skip
    return places, log_probs
