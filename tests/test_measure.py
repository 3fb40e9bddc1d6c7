"""One run on tiny models: every arm on every prompt, journalled, resumed, checked before any compute."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from dominotree import loading
from dominotree import measure as measuring
from dominotree.arms import Arm, MethodSettings
from dominotree.compose import compose_run
from dominotree.decoding.engine import Flight
from dominotree.decoding.requests import Limits, Output, Request
from dominotree.decoding.sampling import KeyedSampler
from dominotree.errors import UserError
from dominotree.measure import first_divergence, measure, waves
from dominotree.methods import speculation
from dominotree.prompts import load_dataset
from tests.tiny import tiny_parts, tiny_target

ARMS = ["ar", "dflash", "ddtree@32", "caddtree", "domino", "dominotree@32"]


def run_of(tiny_overrides, *more):
    return compose_run([*tiny_overrides, "arms=[ar,dflash,ddtree,caddtree,domino,dominotree]", *more])


@pytest.mark.parametrize("temperature", [0, 1])
def test_every_arm_on_every_prompt(tiny_overrides, tmp_path, temperature):
    config = run_of(tiny_overrides, f"temperature={temperature}", "dataset=chat")
    records = measure(config, tmp_path / "journal.jsonl")
    prompts = load_dataset("chat", 3)
    turns = sum(len(prompt.turns) for prompt in prompts)
    assert list(records.groupby("arm", sort=False).size().items()) != []
    assert set(records.arm) == set(ARMS)
    assert (records.groupby("arm").size() == turns).all()
    assert (records.divergence == -1).all(), "fp32: every arm gives the tokens of AR"
    assert records.groupby(["conversation", "turn"]).output_sha.nunique().eq(1).all()
    assert records[records.method == "ar"].tau.dropna().eq(1).all()
    assert records[records.method == "domino"].tree_nodes.dropna().eq(6).all()
    assert records[records.method == "caddtree"].tree_nodes.dropna().le(16).all(), "the rule's own cap"
    assert (records.num_output + 1 == records.output_ids.map(len)).all()


def test_stage_times_add_up_to_the_round(tiny_overrides, tmp_path):
    records = measure(run_of(tiny_overrides, "max_new_tokens=60"), tmp_path / "journal.jsonl")
    records = records[(records.method != "ar") & (records.rounds > 5)]
    stages = records[["draft_ms", "build_ms", "verify_ms", "commit_ms"]].sum(axis=1) * records.rounds
    share = (stages / 1000).sum() / records.decode_s.sum()
    assert 0.95 <= share <= 1.0


def test_order_of_arms_rotates(tiny_overrides, tmp_path, monkeypatch):
    first = []
    converse = measuring._converse
    monkeypatch.setattr(
        measuring, "_converse", lambda decoder, *rest: first.append(decoder.arm.method) or converse(decoder, *rest)
    )
    measure(run_of(tiny_overrides), tmp_path / "journal.jsonl")
    assert first[::6] == ["ar", "dflash", "ddtree"]
    assert sorted(first) == sorted(["ar", "dflash", "ddtree", "caddtree", "domino", "dominotree"] * 3)


def test_a_cut_run_goes_on_where_it_stopped(tiny_overrides, tmp_path, monkeypatch):
    config, journal, answered = run_of(tiny_overrides), tmp_path / "journal.jsonl", []
    answer = measuring._answers

    def cut_after_two(decoders, wave, *rest, **more):
        if len(answered) == 2:
            raise KeyboardInterrupt
        answered.append(wave[0].id)
        return answer(decoders, wave, *rest, **more)

    monkeypatch.setattr(measuring, "_answers", cut_after_two)
    with pytest.raises(KeyboardInterrupt):
        measure(config, journal)
    before = [json.loads(line) for line in journal.read_text().splitlines()][1:]
    assert [entry["conversation"] for entry in before] == answered
    monkeypatch.setattr(measuring, "_answers", answer)
    records = measure(config, journal)
    after = [json.loads(line) for line in journal.read_text().splitlines()][1:]
    assert after[:2] == before, "what was measured stays as it was"
    assert len(after) == 3 and set(records.conversation) == {entry["conversation"] for entry in after}


def test_a_complete_journal_needs_no_model(tiny_overrides, tmp_path, monkeypatch):
    config = run_of(tiny_overrides)
    first = measure(config, tmp_path / "journal.jsonl")
    monkeypatch.setattr(measuring, "load_decoders", lambda *_: pytest.fail("nothing is left to measure"))
    pd.testing.assert_frame_equal(measure(config, tmp_path / "journal.jsonl"), first)


@pytest.fixture
def no_compute(monkeypatch):
    monkeypatch.setattr(measuring, "load_decoders", lambda *_: pytest.fail("bad input must stop before weights are read"))


def refused(config, journal: Path, *words: str) -> None:
    with pytest.raises(UserError) as caught:
        measure(config, journal)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.usefixtures("no_compute")
def test_bad_input_stops_before_any_compute(tiny_overrides, tiny_models, tmp_path):
    journal = tmp_path / "journal.jsonl"
    refused(run_of(tiny_overrides, "method.dominotree.candidate_width=41"), journal, "candidate_width=41", "vocabulary of 40")
    refused(run_of(tiny_overrides, "max_new_tokens=250"), journal, "context is 256")
    refused(run_of(tiny_overrides, "engine.device=cuda"), journal, "no GPU")
    swapped = [f"model.drafters.dflash={tiny_models / 'domino'}", f"model.drafters.domino={tiny_models / 'dflash'}"]
    refused(run_of(tiny_overrides, swapped[0]), journal, "domino drafter", "dflash drafter")
    refused(run_of(tiny_overrides, swapped[1]), journal, "dflash drafter", "domino drafter")
    refused(run_of(tiny_overrides, "model.target=/nowhere"), journal, "/nowhere", "no such folder")
    assert not journal.exists()


@pytest.mark.usefixtures("no_compute")
@pytest.mark.parametrize(
    "content", ["", "{}\n", "not json", '{"format": "dominotree-journal-1", "run": "other", "arms": ["ar"]}\n']
)
def test_a_foreign_journal_stops_the_run(tiny_overrides, tmp_path, content):
    journal = tmp_path / "journal.jsonl"
    journal.write_text(content)
    refused(run_of(tiny_overrides), journal, "journal.jsonl, line 1")
    assert journal.read_text() == content, "nothing is lost"


def test_a_truncated_journal_stops_the_run(tiny_overrides, tmp_path, monkeypatch):
    config, journal = run_of(tiny_overrides), tmp_path / "journal.jsonl"
    measure(config, journal)
    whole = journal.read_bytes()
    monkeypatch.setattr(measuring, "load_decoders", lambda *_: pytest.fail("no compute"))
    for cut in (len(whole) - 1, len(whole) - 100, len(whole) // 2):
        journal.write_bytes(whole[:cut])
        refused(config, journal, "line")
        assert journal.read_bytes() == whole[:cut]


def test_requests_in_flight_get_their_own_tokens(tiny_overrides, tmp_path):
    changes = ("arms=[ar,dflash,ddtree,domino,dominotree,loadaware]", "dataset=chat", "temperature=1")
    alone = measure(compose_run([*tiny_overrides, *changes]), tmp_path / "alone.jsonl")
    records = measure(compose_run([*tiny_overrides, *changes, "concurrency=2"]), tmp_path / "together.jsonl")
    assert (records.divergence == -1).all() and records.concurrency.eq(2).all() and alone.concurrency.eq(1).all()
    place = ["arm", "conversation", "turn"]
    both = alone.merge(records, on=place, suffixes=("_alone", "_together"), validate="1:1")
    assert len(both) == len(records) == len(alone)
    assert (both.output_sha_alone == both.output_sha_together).all(), "a conversation's second turn included"
    assert (both.rounds_alone == both.rounds_together)[both.arm != "loadaware"].all()
    assert (alone.share_s - alone.prefill_s - alone.decode_s).abs().max() < 1e-9, "alone, all the time is its own"
    assert (records.share_s < records.prefill_s + records.decode_s).mean() > 0.8, "the others have their part"


@pytest.mark.parametrize(
    ("left", "concurrency", "sizes"), [(3, 1, [1, 1, 1]), (12, 2, [4, 4, 4]), (12, 8, [12]), (9, 2, [3, 3, 3])]
)
def test_waves(left, concurrency, sizes):
    found = waves(range(left), concurrency)
    assert [len(wave) for wave in found] == sizes
    assert [place for wave in found for place in wave] == list(range(left))


@pytest.mark.parametrize("done", [0, 4])
def test_the_order_of_arms_is_rotated_by_wave(tiny_overrides, tmp_path, monkeypatch, done):
    """Whatever the waves' sizes: here as many conversations as there are arms. Also in a run that goes on."""
    orders, serve_ = [], loading.Decoder.serve

    def note(decoder, clients, *sizes):
        orders.append((decoder.arm.label, len(clients)))
        return serve_(decoder, clients, *sizes)

    arms = ["ar", "dflash", "ddtree@9", "domino"]
    changes = (f"arms=[{','.join(arms)}]", "concurrency=2", "dataset=math", "dataset.num_prompts=12", "max_new_tokens=2")
    config, journal = compose_run([*tiny_overrides, *changes]), tmp_path / "journal.jsonl"
    if done:
        measure(config, journal)
        journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[: 1 + done]))
    monkeypatch.setattr(loading.Decoder, "serve", note)
    measure(config, journal)
    measured = orders[len(arms) :]  # after the warm-up
    assert {count for _, count in measured} == {4}
    firsts = [measured[start][0] for start in range(0, len(measured), len(arms))]
    assert len(firsts) == len(set(firsts)) == (12 - done) // 4


@pytest.mark.parametrize("done", [1, 5])
def test_a_wave_that_was_cut_short_is_gone_on_with(tiny_overrides, tmp_path, done):
    """A conversation is then in a wave with others, and gives what it gave."""
    changes = ("arms=[ar,domino,dominotree]", "concurrency=2", "dataset=chat", "dataset.num_prompts=7", "temperature=1")
    config, journal = compose_run([*tiny_overrides, *changes]), tmp_path / "journal.jsonl"
    whole = measure(config, journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: 1 + done]))
    again = measure(config, journal)
    same = ["arm", "conversation", "turn", "output_sha", "rounds", "num_input", "stop_reason", "tree_nodes", "divergence"]
    pd.testing.assert_frame_equal(whole[same], again[same])
    assert len(journal.read_bytes().splitlines()) == len(lines)


@pytest.mark.parametrize("forecast", ["calibrated", "measured", "drafter"])
def test_budgets_follow_the_load_with_any_forecast(tiny_overrides, tmp_path, forecast):
    changes = ("arms=[ar,loadaware]", f"method.loadaware.forecast={forecast}", "concurrency=2", "max_new_tokens=4")
    assert (measure(compose_run([*tiny_overrides, *changes]), tmp_path / "journal.jsonl").divergence == -1).all()


def test_a_target_that_never_begins_an_answer_cannot_calibrate(tiny_overrides, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "CALIBRATION_TOKENS", 1)  # each ends with its first token
    with pytest.raises(UserError, match="forecasts can't be calibrated: the target ends every held-out prompt"):
        measure(compose_run([*tiny_overrides, "arms=[loadaware]", "seed=991"]), tmp_path / "journal.jsonl")


def test_what_is_in_flight_must_fit(tiny_overrides, tmp_path, monkeypatch, capsys):
    config = compose_run([*tiny_overrides, "arms=[ar,domino]", "concurrency=3"])
    measure(config, tmp_path / "journal.jsonl")
    assert re.search(r"3 requests in flight, up to \d+ tokens each: 0 MiB of \d+ free on cpu", capsys.readouterr().err)
    monkeypatch.setattr(loading, "free_memory", lambda device: 2**15)
    with pytest.raises(UserError, match=r"concurrency=3: requests of \d+ tokens take .*; lower concurrency or max_new_tokens"):
        measure(config, tmp_path / "none.jsonl")


@pytest.mark.parametrize("budget", [1, 30])
def test_what_is_stated_is_not_less_than_what_is_held(budget):
    """Of requests that are all as long as may be, when the first draft is made; also where a tree is smaller than a block."""
    target, slots, longest = tiny_target(0), 3, 40
    parts = tiny_parts("dominotree", target, MethodSettings(budget=budget, children=4, candidate_width=10))
    whole, held = speculation("dominotree", parts), []
    samplers = [KeyedSampler(0, str(slot), 1.0) for slot in range(slots)]

    def ask(sampler):
        return (yield Request([1] * (longest - 2), sampler, Limits(2)))

    flight = Flight(target, whole, [partial(ask, sampler) for sampler in samplers], slots, longest)

    def build(draft, histories):
        tree = whole.build(draft, histories)
        held.extend([flight.cache.data, draft.base_logits, *(part for pair in flight.drafting.buffers for part in pair)])
        held.append(torch.empty(slots, tree.num_nodes + 1, target.config.vocab_size))  # what the pass gives
        return tree

    start = flight.drafting.start
    flight.drafting.start = lambda slot, given: (held.append(given), start(slot, given))
    flight.speculation = replace(whole, build=build)
    with torch.inference_mode():
        flight.serve()
    taken = sum(part.nbytes for part in [*held, *(sampler.noise for sampler in samplers)])
    stated = loading.Loaded(Arm("dominotree", "dominotree", parts.settings), target, parts).bytes_in_flight(slots, longest)
    assert taken <= stated < 1.5 * taken


@pytest.mark.parametrize("arm", ["domino", "caddtree", "loadaware"])
def test_a_load_that_no_machine_holds_is_refused_before_any_pass(tiny_overrides, tmp_path, monkeypatch, arm):
    """Also for arms whose costs are timed under that load first."""
    config = compose_run([*tiny_overrides, f"arms=[ar,{arm}]", "concurrency=100000000"])
    monkeypatch.setattr(loading.Target, "forward", lambda *_, **__: pytest.fail("no compute"))
    with pytest.raises(UserError, match="concurrency=100000000: requests of"):
        measure(config, tmp_path / "journal.jsonl")


def test_contexts_at_which_costs_are_timed_must_fit_too(tiny_overrides, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "free_memory", lambda device: 2**15)
    taken = {}
    for arm in ("domino", "loadaware"):
        config = compose_run([*tiny_overrides, f"arms=[{arm}]", "concurrency=2", "cost_model.contexts=[0,4000,9000]"])
        with pytest.raises(UserError) as caught:
            measure(config, tmp_path / arm)
        taken[arm] = int(re.search(r"requests of (\d+) tokens", str(caught.value))[1])
    assert taken["loadaware"] == 4000 > taken["domino"]


def test_first_divergence():
    assert first_divergence([1, 2, 3], [1, 2, 3]) == -1
    assert first_divergence([1, 2, 3], [1, 5, 3]) == 1
    assert first_divergence([1, 2], [1, 2, 3]) == 2
    assert first_divergence([1, 2, 3], [1, 2]) == 2


def test_a_divergence_is_recorded_with_its_margin(tiny_overrides, tmp_path, monkeypatch):
    extend = Output.extend

    def wrong(output, committed):
        count = extend(output, committed)
        if len(output.tokens) > 2 and count > 1:  # more than one token a round: not AR
            output.tokens[2] = 39 - output.tokens[2]
        return count

    monkeypatch.setattr(Output, "extend", wrong)
    config = compose_run([*tiny_overrides, "arms=[ar,domino]", "dataset=math"])
    records = measure(config, tmp_path / "journal.jsonl")
    changed = records[(records.method == "domino") & (records.num_output >= 2)]
    assert len(changed) and (changed.divergence == 2).all() and (changed.margin > 0).all()
    assert records[records.method == "ar"].margin.isna().all()


def test_arms_beyond_the_compared_ones(tiny_overrides, tmp_path):
    adaptive = "adaptive,adaptive+calibrated,adaptive+measured"
    arms = f"arms=[ar,dominotree@9,dominotree@9+heap,dominotree@9+tail,domino+sampled,dartree@20,{adaptive}]"
    config = compose_run([*tiny_overrides, arms, "temperature=1"])
    records = measure(config, tmp_path / "journal.jsonl")
    assert (records.divergence == -1).all()
    drafted = records[records.rounds > 0].set_index("arm")
    assert drafted.loc["dominotree@9"].tree_nodes.eq(9).all()
    assert drafted.loc["dartree@20"].tree_nodes.eq(20).all()
    assert drafted.loc["adaptive"].tree_nodes.le(16).all()
    frontier, heap = (drafted.loc[f"dominotree@9{variant}"] for variant in ("", "+heap"))
    assert (frontier.tau.to_numpy() == heap.tau.to_numpy()).all(), "the same trees"
    nodes = frontier.nodes_by_bin.map(sum).to_numpy()
    assert (nodes == 9 * frontier.rounds.to_numpy()).all()
    forecast = frontier.forecast_by_bin.map(sum).to_numpy() / frontier.rounds.to_numpy()
    assert forecast == pytest.approx(frontier.forecast.to_numpy() - 1)
    assert frontier.accepted_by_bin.map(sum).to_numpy() == pytest.approx(accepted_of(frontier), abs=1)
    (kept,) = (tmp_path / "cache" / "calibrations").iterdir()
    whole = kept.read_text()
    kept.write_text("{")
    again = measure(config, tmp_path / "again.jsonl")
    assert again.tree_nodes.equals(records.tree_nodes)
    assert kept.read_text() == whole, "made again"


def test_costs_are_profiled_anew_for_other_code_and_only_then(tiny_overrides, monkeypatch):
    def costs_after(change):
        with monkeypatch.context() as patch:
            if change:
                patch.setattr("dominotree.config.source_digests", lambda names: {"decoding": change})
            loading.load_decoders(compose_run([*tiny_overrides, "arms=[caddtree]"]), torch.device("cpu"), longest=60)

    profiled = []
    profile = loading.profile_costs
    monkeypatch.setattr(loading, "profile_costs", lambda *arguments: profiled.append(1) or profile(*arguments))
    for change, expected in ((None, 1), (None, 1), ("decoding 2", 2), ("decoding 2", 2), ("decoding 3", 3)):
        costs_after(change)
        assert len(profiled) == expected


def accepted_of(rows):
    """Drafted tokens that were committed; the last round's may have been cut."""
    return (rows.num_output - rows.rounds).to_numpy()


def test_the_input_table_says_what_it_takes(tiny_overrides, tmp_path, monkeypatch, capsys):
    config = compose_run([*tiny_overrides, "arms=[domino]"])
    table = measure(config, tmp_path / "table.jsonl")
    assert "GRU input table: 0 MiB of" in capsys.readouterr().err
    computed = measure(
        compose_run([*tiny_overrides, "arms=[domino]", "engine.gru_input_table=false"]), tmp_path / "computed.jsonl"
    )
    assert table.output_sha.tolist() == computed.output_sha.tolist()
    assert table.accept_hist.tolist() == computed.accept_hist.tolist()
    monkeypatch.setattr(loading, "free_memory", lambda _: 5)
    with pytest.raises(UserError, match="0 are free; engine"):
        measure(config, tmp_path / "none.jsonl")


def test_plain_sampling_is_not_compared(tiny_overrides, tmp_path):
    config = compose_run([*tiny_overrides, "arms=[ar,domino]", "temperature=1", "engine.sampling=multinomial"])
    assert measure(config, tmp_path / "journal.jsonl").divergence.isna().all()


@pytest.mark.usefixtures("no_compute")
def test_a_target_without_tokenizer(tiny_overrides, tiny_models, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).symlink_to(tiny_models / "target" / name)
    refused(run_of(tiny_overrides, f"model.target={bare}"), tmp_path / "journal.jsonl", "bare", "tokenizer")


@pytest.mark.parametrize(
    ("values", "limit", "kept"),
    [((0, 256, 512), 170, (0, 256)), ((0, 256, 512), 256, (0, 256)), ((0, 256), 900, (0, 256)), ((1, 4, 16), 5, (1, 4, 16))],
)
def test_costs_are_timed_as_far_as_a_run_goes(values, limit, kept):
    assert loading._up_to(values, limit) == kept
