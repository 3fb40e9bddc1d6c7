from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dominotree.models.target import Target
from dominotree.prompts import EMBEDDED_SETS, load_dataset
from dominotree.prompts.rendering import turn_frame
from dominotree.training import generate
from dominotree.training.corpus import Conversation, CorpusConfig, read_corpus
from dominotree.training.generate import OPENINGS, complete, sample_turns, select, write_batch, write_corpus

CONFIG = CorpusConfig(batches=4, batch_size=8, max_prompt_tokens=12, max_response_tokens=9)


@pytest.fixture(scope="module")
def tokenizer(make_tokenizer: Callable[..., Any]) -> Any:
    return make_tokenizer()


@pytest.fixture(scope="module")
def target(make_target: Callable[..., Target], tokenizer: Any) -> Target:
    return make_target(vocab_size=len(tokenizer))


def test_corpus(target: Target, tokenizer: Any, tmp_path: Path) -> None:
    write_corpus(target, tokenizer, CONFIG, tmp_path / "corpus.jsonl.xz")
    corpus = read_corpus(tmp_path / "corpus.jsonl.xz")
    before, _ = turn_frame(tokenizer)
    end = tokenizer.eos_token_id
    assert len(corpus) > 4
    assert {c.temperature for c in corpus} == {0.0, 0.8, 1.0}
    for conversation in corpus:
        text = tokenizer.decode(conversation.prompt_ids)
        assert text.startswith(before)
        assert text.endswith(" <end> <start> assistant")
        assert conversation.family in EMBEDDED_SETS
        assert 1 <= len(conversation.response_ids) <= CONFIG.max_response_tokens
        assert end not in conversation.response_ids[:-1]
        assert conversation.response_ids[-1] == end or len(conversation.response_ids) == CONFIG.max_response_tokens


def test_resumes_without_writing_a_shard_twice(
    target: Target, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counting(target: Target, tokenizer: Any, config: CorpusConfig, batch: int) -> list[Conversation]:
        if batch == 3 and not written[3:]:
            written.append("cut")
            raise KeyboardInterrupt
        written.append(batch)
        return write_batch(target, tokenizer, config, batch)

    written: list[int | str] = []
    output, straight = tmp_path / "cut" / "corpus.jsonl", tmp_path / "straight" / "corpus.jsonl"
    write_corpus(target, tokenizer, CONFIG, straight)
    monkeypatch.setattr(generate, "write_batch", counting)
    with pytest.raises(KeyboardInterrupt):
        write_corpus(target, tokenizer, CONFIG, output)
    assert not output.exists()
    torch.manual_seed(99)
    write_corpus(target, tokenizer, CONFIG, output)
    assert written == [0, 1, 2, "cut", 3]
    assert output.read_bytes() == straight.read_bytes()
    write_corpus(target, tokenizer, replace(CONFIG, batches=5), output)
    assert written[5:] == [4]
    write_corpus(target, tokenizer, replace(CONFIG, seed=1), output)
    assert written[6:] == [0, 1, 2, 3]


def test_unfinished_and_empty_turns_are_dropped(target: Target, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    word, end, special = tokenizer.convert_tokens_to_ids(["poem", "<end>", "<pad>"])
    completions = [[end], [word, word], [special, end], [word, end]]
    monkeypatch.setattr(generate, "complete", lambda *arguments: completions)
    ((family, text),) = sample_turns(target, tokenizer, replace(CONFIG, batch_size=4), random.Random(0))
    assert text.removesuffix("poem") in OPENINGS[family]


def test_padding_does_not_change_a_greedy_completion(target: Target) -> None:
    prompts = [[5, 6, 7, 8, 9, 10], [11, 12], [13, 14, 15]]
    alone = [complete(target, [prompt], 2, 7, 0.0)[0] for prompt in prompts]
    assert complete(target, prompts, 2, 7, 0.0) == alone


@pytest.mark.parametrize("change", [str, str.upper, lambda turn: f"please\n{turn.replace(' ', '  ')} why"])
def test_evaluation_prompts_are_left_out(make_tokenizer: Callable[..., Any], change: Callable[[str], str]) -> None:
    turns = [turn for name in EMBEDDED_SETS for c in load_dataset(name) for turn in c.turns]
    texts = [f"<start> user {change(turn)} <end>" for turn in turns]
    conversations = [Conversation("chat", 0.0, (i,), (1, 2)) for i in range(len(texts))]
    assert select(conversations, Lookup([*texts, "user tell me why"])) == []


def test_first_of_equal_turns_is_kept() -> None:
    conversations = [Conversation("chat", 0.0, (i,), (1, i)) for i in range(3)]
    assert select(conversations, Lookup(["user why", "user how", "user why"])) == conversations[:2]


class Lookup:
    """A tokenizer whose token i is the i-th text."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def decode(self, ids: tuple[int, ...]) -> str:
        return " ".join(self.texts[i] for i in ids)
