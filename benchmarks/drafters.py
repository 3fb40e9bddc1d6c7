"""How many tokens a round the shipped drafters get on the target's own text that they were not trained on.

    python -m benchmarks.drafters corpus.jsonl.xz --prompts 24 --new-tokens 64

takes the conversations of a corpus that training held out, decodes their prompts greedily in fp32, and prints tau (tokens
over rounds) of each method as JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from dominotree.arms import MethodSettings
from dominotree.decoding.engine import Speculation, generate
from dominotree.decoding.requests import Limits, Request
from dominotree.decoding.sampling import GreedySampler
from dominotree.drafting.scorers import ComputedInputs
from dominotree.errors import exit_on_user_error
from dominotree.methods import METHODS, Parts, max_nodes
from dominotree.models.checkpoint import load_drafter
from dominotree.models.target import DEMO, Target, load_target, load_tokenizer
from dominotree.paths import ASSETS
from dominotree.progress import track
from dominotree.training.corpus import read_corpus
from dominotree.training.train import TrainingConfig, split

CPU = torch.device("cpu")
ARMS = {
    "dflash": MethodSettings(),
    "ddtree": MethodSettings(budget=32),
    "domino": MethodSettings(),
    "marginal": MethodSettings(budget=32, children=8),
    "static": MethodSettings(budget=32, children=8, candidate_width=64),
    "dominotree": MethodSettings(budget=32, children=8, candidate_width=64),
}


def held_out_prompts(corpus: Path, count: int) -> list[list[int]]:
    """Prompts of the first `count` held-out conversations whose answer was greedy."""
    conversations = read_corpus(corpus)
    training = TrainingConfig(kind="domino", steps=1)
    _, held_out = split(conversations, training.held_out, training.seed)
    greedy = [conversations[i] for i in held_out if conversations[i].temperature == 0]
    return [list(conversation.prompt_ids) for conversation in greedy[:count]]


def tau(model: torch.nn.Module, method: str, settings: MethodSettings, prompts: list[list[int]], limits: Limits) -> float:
    """Tokens over rounds of one method on all prompts."""
    kind = METHODS[method].drafter
    drafter = load_drafter(ASSETS / f"smollm2-135m-{kind}", kind, torch.float32, CPU)
    target = Target(model, drafter.config.target_layer_ids)
    parts = Parts(drafter, settings, ComputedInputs(drafter, target.embedding) if kind == "domino" else None)
    speculation = Speculation(drafter, METHODS[method].make_build(parts), max_nodes(parts))
    tokens = rounds = 0
    for prompt in track(method, prompts, len(prompts)):
        generation = generate(target, speculation, Request(prompt, GreedySampler(), limits))
        tokens += len(generation.tokens) - 1
        rounds += len(generation.rounds)
    return tokens / rounds


@exit_on_user_error
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--new-tokens", type=int, default=64)
    options = parser.parse_args()
    prompts = held_out_prompts(options.corpus, options.prompts)
    model = load_target(DEMO, torch.float32, CPU).model
    limits = Limits(options.new_tokens, frozenset({load_tokenizer(DEMO).eos_token_id}))
    taus = {method: round(tau(model, method, settings, prompts, limits), 3) for method, settings in ARMS.items()}
    print(json.dumps({"prompts": len(prompts), "new_tokens": options.new_tokens, "budget": 32, "tau": taus}))


if __name__ == "__main__":
    main()
