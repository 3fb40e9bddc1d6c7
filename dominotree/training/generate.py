"""The target writes the corpus: it samples user turns from the opening of its own chat template, then answers them.

A drafter has to predict what the target says, so what it learns from is the target's own text. Each batch depends on
the seed and its index alone and becomes one shard file, so that a run cut short goes on where it stopped. User turns
that equal or contain a prompt of the embedded evaluation sets are left out of the corpus.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from dominotree.models.target import Target
from dominotree.progress import track
from dominotree.prompts import EMBEDDED_SETS, load_dataset
from dominotree.prompts.rendering import encode, render, turn_frame
from dominotree.training.corpus import Conversation, CorpusConfig, read_corpus, save_corpus

OPENINGS = {
    "math": (
        "What is", "How many", "How much", "Find the", "Solve", "Calculate", "If a", "In a", "A shop", "A train",
        "A farmer", "Explain how to calculate", "Show how to",
    ),
    "code": (
        "Write a Python function", "Write a Python program", "Write a Python class", "Write a function that",
        "Write a JavaScript", "Write an SQL query", "Write an HTML", "Implement a", "Fix the bug in this Python code:\n",
        "Explain what this code does:\n", "What is the difference between a", "How do I", "Show how",
    ),
    "chat": (
        "", "", "", "", "Can you", "Give me", "Tell me", "Write a", "Write a short story", "Write a letter", "Explain",
        "Describe", "Suggest", "What are", "What should I", "How can I", "Why", "I have", "I'm", "My",
    ),
}  # fmt: skip
"""How a user turn may begin, by family; the target goes on from there. An empty one leaves all of it to the target."""


def write_corpus(target: Target, tokenizer: Any, config: CorpusConfig, output: Path) -> None:
    """Write a corpus to `output` (.jsonl or .jsonl.xz), keeping one shard a batch in a folder beside it.

    Shards that are there already are not written again; the folder's name tells one configuration from another.
    Raises `UserError` if the tokenizer has no chat template, or a file cannot be written or read.
    """
    shards = output.parent / f"{output.name.split('.')[0]}-shards-{_digest(target, config)}"
    paths = [shards / f"{batch:05d}.jsonl" for batch in range(config.batches)]
    missing = [batch for batch, path in enumerate(paths) if not path.is_file()]
    for batch in track("corpus", missing, len(paths), done=len(paths) - len(missing)):
        save_corpus(write_batch(target, tokenizer, config, batch), paths[batch])
    save_corpus(select((c for path in paths for c in read_corpus(path)), tokenizer), output)


def _digest(target: Target, config: CorpusConfig) -> str:
    """Of all that a shard depends on, which is not how many there are."""
    model = [target.config.name_or_path, target.config.to_dict(), str(target.dtype)]
    sources = [model, OPENINGS, asdict(replace(config, batches=0))]
    return hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()[:12]


def write_batch(target: Target, tokenizer: Any, config: CorpusConfig, batch: int) -> list[Conversation]:
    """The conversations of one batch, at most `batch_size`: a function of the seed and of its index."""
    seed = config.seed * 1_000_003 + batch
    torch.manual_seed(seed)
    temperature = config.response_temperatures[batch % len(config.response_temperatures)]
    turns = sample_turns(target, tokenizer, config, random.Random(seed))
    prompts = [render(tokenizer, [{"role": "user", "content": text}])[1] for _, text in turns]
    responses = complete(target, prompts, tokenizer.eos_token_id, config.max_response_tokens, temperature)
    return [
        Conversation(family, temperature, tuple(prompt), tuple(response))
        for (family, _), prompt, response in zip(turns, prompts, responses, strict=True)
    ]


def sample_turns(target: Target, tokenizer: Any, config: CorpusConfig, rng: random.Random) -> list[tuple[str, str]]:
    """User turns with their families; those that the target left empty or did not end in time are dropped."""
    before, after = turn_frame(tokenizer)
    families = rng.choices(EMBEDDED_SETS, k=config.batch_size)
    openings = [rng.choice(OPENINGS[family]) for family in families]
    prompts = [encode(tokenizer, before + opening) for opening in openings]
    end = encode(tokenizer, after)[0]
    sampled = complete(target, prompts, end, config.max_prompt_tokens, config.prompt_temperature, config.prompt_top_p)
    turns = []
    for family, opening, ids in zip(families, openings, sampled, strict=True):
        text = tokenizer.decode(ids, skip_special_tokens=True)
        if ids[-1] == end and text.strip():
            turns.append((family, (opening + text).strip()))
    return turns


def complete(
    target: Target, prompts: Sequence[Sequence[int]], end: int, max_new_tokens: int, temperature: float, top_p: float = 1.0
) -> list[list[int]]:
    """What the target writes after each prompt, up to and including `end`; greedily at temperature 0."""
    if not prompts:
        return []
    width = max(len(prompt) for prompt in prompts)
    padded = [[end] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    sampled = {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": 0}
    output = target.model.generate(
        input_ids=torch.tensor(padded, device=target.device),
        attention_mask=torch.tensor(mask, device=target.device),
        max_new_tokens=max_new_tokens,
        eos_token_id=end,
        pad_token_id=end,
        **(sampled if temperature else {"do_sample": False}),
    )
    return [row[: row.index(end) + 1] if end in row else row for row in output[:, width:].tolist()]


def select(conversations: Iterable[Conversation], tokenizer: Any) -> list[Conversation]:
    """The first of each user turn, but none that equals or contains an evaluation prompt (whatever the case and spaces)."""
    forbidden = [_normalise(turn) for name in EMBEDDED_SETS for c in load_dataset(name) for turn in c.turns]
    kept: dict[str, Conversation] = {}
    for conversation in conversations:
        text = _normalise(tokenizer.decode(conversation.prompt_ids))
        if not any(turn in text for turn in forbidden):
            kept.setdefault(text, conversation)
    return list(kept.values())


def _normalise(text: str) -> str:
    return " ".join(text.casefold().split())
