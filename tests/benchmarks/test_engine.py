"""The engine's benchmark on tiny models: what it measures is what it says."""

from __future__ import annotations

import torch

from benchmarks.engine import compare_passes, one_pass, table
from tests.tiny import tiny_target


@torch.inference_mode()
def test_a_row_for_each_number_of_rows():
    rows = list(compare_passes(tiny_target(), [1, 5], context=8, repeats=2))
    assert [(row.dtype, row.rows) for row in rows] == [("float32", 1), ("float32", 5)]
    assert rows[0].steps == rows[0].transformers_steps == 1
    assert rows[1].steps == rows[1].pass_ms / rows[0].pass_ms
    assert len(table(rows).splitlines()) == 3


def test_a_pass_is_a_step_of_ar_or_a_verification():
    target = tiny_target()
    step, tree = one_pass(target, 1, context=8), one_pass(target, 5, context=8)
    assert step.layout is None and step.positions.tolist() == [[8]]
    assert tree.tokens.shape == (1, 5) and tree.layout.mask.shape == (1, 1, 5, 13)
    assert tree.positions.tolist() == [[8, 9, 9, 9, 9]]
