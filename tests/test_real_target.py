"""Every speculative arm against AR on the demo target, with the drafters that this repository ships, in fp32."""

from __future__ import annotations

import pytest

from dominotree.compose import compose_run
from dominotree.measure import measure

ARMS = "arms=[ar,dflash,ddtree,caddtree,domino,dominotree,marginal,static]"


def records_of(dataset, temperature, prompts, tokens, tmp_path):
    overrides = [
        ARMS,
        f"dataset={dataset}",
        f"temperature={temperature}",
        f"dataset.num_prompts={prompts}",
        f"max_new_tokens={tokens}",
        "cost_model.repeats=2",
        "cost_model.warmups=1",
        "cost_model.contexts=[128]",
        "cost_model.sizes=[1,8,64]",
        "engine.threads=1",
    ]
    return measure(compose_run(overrides), tmp_path / f"{dataset}-{temperature}.jsonl")


def assert_lossless(records):
    assert (records.divergence == -1).all(), records[records.divergence >= 0][["arm", "conversation", "divergence", "margin"]]
    assert records.groupby(["conversation", "turn"]).output_sha.nunique().eq(1).all()
    drafted = records[(records.method != "ar") & (records.rounds > 0)]
    assert drafted.tau.mean() > 1.2, "hardly anything was accepted: the drafters do not fit the target"


@pytest.mark.parametrize(("dataset", "temperature"), [("math", 0), ("chat", 1)])
def test_a_prompt(dataset, temperature, tmp_path, monkeypatch):
    monkeypatch.setattr("dominotree.measure.WARM_UP_TOKENS", 1)  # nothing here is timed
    assert_lossless(records_of(dataset, temperature, prompts=1, tokens=24, tmp_path=tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0, 0.5, 1])
@pytest.mark.parametrize("dataset", ["math", "code", "chat"])
def test_twenty_four_prompts(dataset, temperature, tmp_path):
    assert_lossless(records_of(dataset, temperature, prompts=8, tokens=32, tmp_path=tmp_path))
