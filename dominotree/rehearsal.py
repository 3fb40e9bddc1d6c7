"""What the studies `rehearsal` and `rehearsal-hybrid` measure: tiny random targets, drafters in the released layouts, prompts.

    python -m dominotree.rehearsal FOLDER

writes a Qwen3 to FOLDER/{target,dflash,domino}, a hybrid of Qwen3.6's form to FOLDER/hybrid/{target,dflash,domino}, and
FOLDER/prompts/<dataset>.jsonl. Nothing of it means anything; all of it has the form of the real thing, as far as a pipeline can
tell: a vocabulary above the widest candidate width, a chat template that knows thinking, the original field names of every
dataset, a multimodal checkpoint around the hybrid's text part.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dominotree.errors import exit_on_user_error
from dominotree.files import atomic_write
from dominotree.models.checkpoint import save_drafter
from dominotree.models.drafter import DRAFTERS, DFlashDrafter, DrafterConfig, DrafterKind, Sight
from dominotree.progress import report
from dominotree.prompts import LONG_SETS
from dominotree.prompts.templates import TEMPLATES, Template

SEED = 0
SPECIAL = ("<unk>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<mask>", "system", "user", "assistant")
WORDS = 1200
"""Of the vocabulary besides: more than the widest candidate width of the paper's ablations, 1024."""

SHAPE = {
    "vocab_size": len(SPECIAL) + WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
}
LAYERS = 4
RECURRENT = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
}
VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": SHAPE["hidden_size"]}
LAYOUTS: dict[str, dict[DrafterKind, dict[str, Any]]] = {
    "qwen3": {"dflash": {"shift_label": False}, "domino": {"shift_label": True}},
    "hybrid": {
        "dflash": {"shift_label": False, "num_hidden_layers": 2, "sights": (Sight(16, causal=True), Sight())},
        "domino": {"shift_label": False},
    },
}
"""What differs between the released drafters of Qwen3 and of Qwen3.6."""

PROMPTS = 3
LONG = {"8k": 200, "16k": 400, "32k": 800}
"""Words of a long prompt, by what it stands for."""

TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} {{ message['content'] }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% if not enable_thinking %}<think> </think> {% endif %}{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Words parted by spaces; every word that is not of the vocabulary is `<unk>`."""
    names = [*SPECIAL, *(f"w{number}" for number in range(WORDS))]
    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(names)}, unk_token=SPECIAL[0]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token=SPECIAL[0], eos_token="<|im_end|>", chat_template=TEMPLATE)


def make_target() -> Qwen3ForCausalLM:
    """A random target whose weights are large enough that its choices are clear."""
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_hidden_layers=LAYERS, tie_word_embeddings=True, initializer_range=0.3))


def make_hybrid() -> Qwen3_5ForConditionalGeneration:
    """The same as Qwen3.6 is published: layers with Gated DeltaNet, and a vision tower that nobody asks."""
    text = SHAPE | RECURRENT | {"num_hidden_layers": LAYERS, "initializer_range": 0.3}
    return Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=VISION, tie_word_embeddings=False))


def make_drafter(kind: DrafterKind, layout: dict[str, Any]) -> DFlashDrafter:
    """A random drafter for the target, in a released layout."""
    head = {"pure_draft_prefix_len": 1, "gru_hidden_dim": 16, "emb_dim": 8} if kind == "domino" else {}
    fields = {
        "kind": kind, "num_hidden_layers": 1, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "block_size": 8,
        "mask_token_id": SPECIAL.index("<mask>"), "target_layer_ids": (0, 2), "num_target_layers": LAYERS,
    }  # fmt: skip
    drafter = DRAFTERS[kind](DrafterConfig(**(fields | SHAPE | head | layout)))
    for parameter in drafter.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, 0, 0.3)
    return drafter


def make_rows(name: str, template: Template) -> list[dict[str, Any]]:
    """Rows of a dataset, with the field names of the original: different words in each."""
    texts = [f"{name} w{10 * row} w{10 * row + 1}" for row in range(PROMPTS)]
    values = [[text, f"{text} again"] if template.several else text for text in texts]
    return [dict.fromkeys(template.fields, value) for value in values]


def make_long_rows(name: str) -> list[dict[str, Any]]:
    """Rows of a set of long prompts."""
    words = LONG[name.rpartition("-")[2]]
    texts = [" ".join(f"w{(row + 7 * place) % WORDS}" for place in range(words)) for row in range(PROMPTS)]
    return [{"id": f"{name}-{row}", "family": "summary", "turns": [text]} for row, text in enumerate(texts)]


def write_models(folder: Path, target: PreTrainedModel, layouts: dict[DrafterKind, dict[str, Any]]) -> None:
    """A target with its tokenizer, and drafters of these layouts."""
    target.generation_config.eos_token_id = SPECIAL.index("<|im_end|>")
    target.save_pretrained(folder / "target")
    make_tokenizer().save_pretrained(folder / "target")
    for kind, layout in layouts.items():
        save_drafter(make_drafter(kind, layout), folder / kind)


def make_all(folder: Path) -> None:
    """Write models and prompts."""
    torch.manual_seed(SEED)
    write_models(folder, make_target(), LAYOUTS["qwen3"])
    write_models(folder / "hybrid", make_hybrid(), LAYOUTS["hybrid"])
    sets = {name: make_rows(name, template) for name, template in TEMPLATES.items()}
    for name, rows in (sets | {name: make_long_rows(name) for name in LONG_SETS}).items():
        with atomic_write(folder / "prompts" / f"{name}.jsonl") as partial:
            partial.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report(f"{folder}: a tiny random Qwen3, a hybrid, their drafters, and {PROMPTS} prompts a dataset")


@exit_on_user_error
def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dominotree.rehearsal", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    make_all(parser.parse_args().folder)


if __name__ == "__main__":
    main()
