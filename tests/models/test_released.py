"""The released checkpoints: their keys, shapes and config spellings, and what their network computes.

The network is written here a second time, plainly: in double precision, without a cache, sharing nothing with the package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from dominotree.decoding.draft import Drafting
from dominotree.models.checkpoint import load_drafter, parse_config
from dominotree.models.drafter import DRAFTERS, Sight
from dominotree.models.target import Target
from tests.tiny import tiny_target

CPU = torch.device("cpu")
QWEN3_4B = {"hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
QWEN3_8B = {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
QWEN3_6_27B = {
    **{"hidden_size": 5120, "intermediate_size": 17408, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
    **{"mask_token_id": 248070, "target_layer_ids": [1, 16, 31, 46, 61], "num_target_layers": 64, "vocab_size": 248320},
    **{"max_position_embeddings": 262144, "rope_theta": 10000000},
}
SLIDING = {"layer_types": ["sliding_attention"] * 4 + ["full_attention"], "sliding_window": 2048, "use_sliding_window": True}
TINY = {"hidden_size": 32, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12}

LAYER = {
    "self_attn.q_proj": ("heads * d", "H"),
    "self_attn.k_proj": ("kv * d", "H"),
    "self_attn.v_proj": ("kv * d", "H"),
    "self_attn.o_proj": ("H", "heads * d"),
    "self_attn.q_norm": ("d",),
    "self_attn.k_norm": ("d",),
    "mlp.gate_proj": ("F", "H"),
    "mlp.up_proj": ("F", "H"),
    "mlp.down_proj": ("H", "F"),
    "input_layernorm": ("H",),
    "post_attention_layernorm": ("H",),
}
BACKBONE = {"fc.weight": ("H", "context * H"), "hidden_norm.weight": ("H",), "norm.weight": ("H",)}
HEAD = {
    "prefix_gru.weight_ih_l0": ("3 * G", "H"),
    "prefix_gru.weight_hh_l0": ("3 * G", "G"),
    "embed_proj.0.weight": ("E", "H + G"),
    "embed_proj.2.weight": ("V", "E"),
}


def released_config(kind: str, **sizes: Any) -> dict[str, Any]:
    """A config.json as Hub checkpoints of five layers have it: of Qwen3-4B's or 8B's drafter, but for `sizes`."""
    special = {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]}
    if kind == "domino":
        head = {
            "projector_type": "domino",
            "shift_label": True,
            "pure_draft_prefix_len": 1,
            "gru_hidden_dim": 1024,
            "emb_dim": 256,
        }
        special |= head
    special |= {key: sizes.pop(key) for key in list(sizes) if key in special}
    return {
        "architectures": ["DFlashDraftModel"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "block_size": 16,
        "bos_token_id": 151643,
        "dflash_config": special,
        "dtype": "bfloat16",
        "eos_token_id": 151645,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "layer_types": ["full_attention"] * 5,
        "max_position_embeddings": 40960,
        "max_window_layers": 5,
        "model_type": "qwen3",
        "num_hidden_layers": 5,
        "num_target_layers": 36,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "transformers_version": "4.57.1",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": 151936,
        **sizes,
    }


def tiny_released(kind: str, **changes: Any) -> dict[str, Any]:
    """The same for `tiny_target`."""
    head = {"gru_hidden_dim": 10, "emb_dim": 6} if kind == "domino" else {}
    own = {"mask_token_id": 39, "target_layer_ids": [1, 2], "num_target_layers": 5, "vocab_size": 40, "block_size": 7}
    return released_config(kind, **(TINY | own | head | changes))


def released_shapes(config: dict[str, Any]) -> dict[str, list[int]]:
    """Every tensor of a checkpoint, by the table."""
    special = config["dflash_config"]
    sizes = {
        "H": config["hidden_size"],
        "F": config["intermediate_size"],
        "V": config["vocab_size"],
        "d": config["head_dim"],
        "heads": config["num_attention_heads"],
        "kv": config["num_key_value_heads"],
        "context": len(special["target_layer_ids"]),
        "G": special.get("gru_hidden_dim"),
        "E": special.get("emb_dim"),
    }
    layers = range(config["num_hidden_layers"])
    table = {f"layers.{i}.{name}.weight": shape for i in layers for name, shape in LAYER.items()} | BACKBONE
    table |= HEAD if "projector_type" in special else {}
    return {key: [eval(size, {}, sizes) for size in shape] for key, shape in table.items()}


def write(folder: Path, config: dict[str, Any], rename: Callable[[str], str] = str) -> dict[str, Tensor]:
    """Write a random bf16 checkpoint; returns its tensors in double precision."""
    generator = torch.Generator().manual_seed(7)
    tensors = {
        key: (torch.randn(shape, generator=generator) * (0.4 if len(shape) > 1 else 0.2) + (len(shape) == 1)).bfloat16()
        for key, shape in released_shapes(config).items()
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({rename(key): tensor for key, tensor in tensors.items()}, folder / "model.safetensors")
    return {key: tensor.double() for key, tensor in tensors.items()}


# --- layout --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [QWEN3_4B, QWEN3_8B, QWEN3_6_27B], ids=["4B", "8B", "27B"])
@pytest.mark.parametrize(("kind", "count"), [("dflash", 58), ("domino", 62)])
def test_keys_and_shapes_at_the_real_sizes(kind: str, count: int, sizes: dict[str, int]) -> None:
    config = released_config(kind, **sizes)
    with torch.device("meta"):
        drafter = DRAFTERS[kind](parse_config(config, Path("config.json")))
    found = {key: list(tensor.shape) for key, tensor in drafter.state_dict().items()}
    assert found == released_shapes(config)
    assert len(found) == count
    assert {tensor.device.type for tensor in drafter.state_dict().values()} == {"meta"}


def test_the_config_of_the_4b_domino_drafter() -> None:
    config = parse_config(released_config("domino", **QWEN3_4B), Path("config.json"))
    assert (config.kind, config.block_size, config.num_proposals, config.shift_label) == ("domino", 16, 16, True)
    assert (config.pure_draft_prefix_len, config.gru_hidden_dim, config.emb_dim) == (1, 1024, 256)
    assert (config.hidden_size, config.head_dim, config.rope_theta) == (2560, 128, 1e6)
    assert (config.target_layer_ids, config.num_target_layers, config.mask_token_id) == ((1, 9, 17, 25, 33), 36, 151669)


def test_the_config_of_the_4b_dflash_drafter() -> None:
    config = parse_config(released_config("dflash", **QWEN3_4B), Path("config.json"))
    assert (config.kind, config.block_size, config.num_proposals, config.shift_label) == ("dflash", 16, 15, False)


def test_the_configs_of_the_27b_drafters() -> None:
    """DFlash's has sliding layers, which z-lab's network makes causal where nothing else is said; Domino's drops slot 0."""
    dflash = parse_config(released_config("dflash", **QWEN3_6_27B, **SLIDING), Path("config.json"))
    assert dflash.sights == (Sight(2048, True),) * 4 + (Sight(),)
    domino = parse_config(released_config("domino", **QWEN3_6_27B, shift_label=False), Path("config.json"))
    assert (domino.sights, domino.num_proposals, domino.pure_draft_prefix_len) == ((), 15, 1)
    apart = released_config("dflash", **QWEN3_6_27B, **SLIDING) | {"is_causal": False}
    assert parse_config(apart, Path("config.json")).sights == (Sight(2048),) * 4 + (Sight(),)


def _move(config: dict[str, Any], *keys: str, into: str = "") -> dict[str, Any]:
    """The keys moved into a table; into none: out of dflash_config."""
    tables = [config, config["dflash_config"]]
    moved = {key: table.pop(key) for table in tables for key in keys if key in table}
    (config.setdefault(into, {}) if into else config).update(moved)
    return config


def _new_rope(config: dict[str, Any]) -> dict[str, Any]:
    del config["rope_scaling"]
    return config | {"rope_parameters": {"rope_theta": config.pop("rope_theta"), "rope_type": "default"}}


SPELLINGS = {
    "causal_v5": lambda c: c | {"dflash_config": c["dflash_config"] | {"projector_type": "causal_v5"}},
    "emb_dim outside": lambda c: _move(c, "emb_dim"),
    "emb_dim twice": lambda c: c | {"emb_dim": c["dflash_config"]["emb_dim"]},
    "block_size inside": lambda c: _move(c, "block_size", into="dflash_config"),
    "num_target_layers inside": lambda c: _move(c, "num_target_layers", into="dflash_config"),
    "layers and mask outside": lambda c: _move(c, "mask_token_id", "target_layer_ids"),
    "rope_parameters": _new_rope,
    "DominoDraftModel": lambda c: c | {"architectures": ["DominoDraftModel"], "auto_map": {"AutoModel": "domino.Model"}},
    "domino_config": lambda c: _move(
        c, "emb_dim", "gru_hidden_dim", "pure_draft_prefix_len", "shift_label", into="domino_config"
    ),
    "no layer_types": lambda c: {key: value for key, value in c.items() if key != "layer_types"},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_the_same_drafter(spelling: str) -> None:
    today = parse_config(tiny_released("domino"), Path("config.json"))
    assert parse_config(SPELLINGS[spelling](tiny_released("domino")), Path("config.json")) == today


# --- the network, a second time ------------------------------------------------------------------------------------------


def plain_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def plain_rope(x: Tensor, position: int, theta: float) -> Tensor:
    """One head [d] at one position: pairs (j, j + d/2) as complex numbers, turned by position * theta ** (-2j / d)."""
    half = len(x) // 2
    angles = torch.tensor([position * theta ** (-2 * j / len(x)) for j in range(half)], dtype=torch.float64)
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones(half, dtype=torch.float64), angles)
    return torch.cat((turned.real, turned.imag))


def plain_draft(weights: dict[str, Tensor], config: dict[str, Any], features: Tensor, block: Tensor) -> Tensor:
    """z [B, H] of a block [B, H] behind the features [t, L * H] of all committed tokens."""
    d, heads, shared = config["head_dim"], config["num_attention_heads"], config["num_key_value_heads"]
    context, theta = len(features), config["rope_theta"]
    c = plain_norm(features @ weights["fc.weight"].T, weights["hidden_norm.weight"])
    for i in range(config["num_hidden_layers"]):
        w = {name: weights[f"layers.{i}.{name}.weight"] for name in LAYER}
        x = plain_norm(block, w["input_layernorm"])
        both = torch.cat((c, x))
        q, k, v = x @ w["self_attn.q_proj"].T, both @ w["self_attn.k_proj"].T, both @ w["self_attn.v_proj"].T
        attended = torch.zeros(len(x), heads * d, dtype=torch.float64)
        for head in range(heads):
            ours, theirs = slice(head * d, head * d + d), head // (heads // shared)
            keys = plain_norm(k[:, theirs * d : theirs * d + d], w["self_attn.k_norm"])
            keys = torch.stack([plain_rope(key, place, theta) for place, key in enumerate(keys)])
            for slot, query in enumerate(plain_norm(q[:, ours], w["self_attn.q_norm"])):
                scores = keys @ plain_rope(query, context + slot, theta) / math.sqrt(d)
                if config["layer_types"][i] == "sliding_attention":
                    places = range(context + len(x))
                    hidden = [not 0 <= context + slot - place < config["sliding_window"] for place in places]
                    scores = scores.masked_fill(torch.tensor(hidden), -math.inf)
                attended[slot, ours] = scores.softmax(0) @ v[:, theirs * d : theirs * d + d]
        block = block + attended @ w["self_attn.o_proj"].T
        x = plain_norm(block, w["post_attention_layernorm"])
        gate = x @ w["mlp.gate_proj"].T
        block = block + (gate * gate.sigmoid() * (x @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
    return plain_norm(block, weights["norm.weight"])


def plain_state(weights: dict[str, Tensor], path: Tensor) -> Tensor:
    """The GRU's state [G] after the embeddings [n, H] of a path, in torch's own GRU."""
    gru = torch.nn.GRU(path.shape[1], len(weights["prefix_gru.weight_hh_l0"]) // 3, bias=False, dtype=torch.float64)
    gru.load_state_dict({key.removeprefix("prefix_gru."): weights[key] for key in weights if key.startswith("prefix_gru")})
    return gru(path.unsqueeze(1))[1][0, 0].detach()


def plain_correction(weights: dict[str, Tensor], z: Tensor, state: Tensor) -> Tensor:
    hidden = weights["embed_proj.0.weight"] @ torch.cat((z, state))
    return weights["embed_proj.2.weight"] @ (hidden * hidden.sigmoid())


def close(found: Tensor, plain: Tensor) -> None:
    torch.testing.assert_close(found.double(), plain, atol=2e-4, rtol=2e-4)


def rounds_of(target: Target, features: int) -> list[tuple[Tensor, int]]:
    """What five rounds commit: features of a prompt or an accepted path, and the root behind them."""
    generator = torch.Generator().manual_seed(3)
    roots = torch.randint(0, 39, (5,), generator=generator).tolist()
    return [(torch.randn(1, n, features, generator=generator), root) for n, root in zip((9, 1, 4, 7, 2), roots, strict=True)]


@pytest.mark.parametrize(
    ("kind", "prefix", "changes"),
    [
        ("dflash", "", {}),
        ("dflash", "", SLIDING | {"sliding_window": 5}),
        ("domino", "", {}),
        ("domino", "", {"shift_label": False}),
        ("domino", "logit_head.", {}),
        ("domino", "domino_head.", {}),
    ],
)
def test_rounds_with_the_draft_cache(tmp_path: Path, kind: str, prefix: str, changes: dict[str, Any]) -> None:
    """Each round's z and base logits are the plain ones, although only newly committed features are fed."""
    config = tiny_released(kind, **changes)
    weights = write(tmp_path / kind, config, lambda key: prefix + key if key in HEAD else key)
    drafter, target = load_drafter(tmp_path / kind, kind, torch.float32, CPU), tiny_target()
    embedding, mask = target.embedding.double(), config["dflash_config"]["mask_token_id"]
    drafting, committed = Drafting(drafter, target, 64), torch.zeros(0, 2 * 32, dtype=torch.float64)
    for features, root in rounds_of(target, 2 * 32):
        if len(committed) == 0:
            drafting.start(0, features)
        else:
            drafting.extend(features, [features.shape[1]])
        draft = drafting.draft(torch.tensor([root]))
        committed = torch.cat((committed, features[0].double()))
        z = plain_draft(weights, config, committed, embedding[[root] + [mask] * (config["block_size"] - 1)])
        # Without shifted labels a slot predicts its own position, and slot 0 is the root.
        proposals = z if config["dflash_config"].get("shift_label") else z[1:]
        close(draft.z.reshape(-1, 32), proposals)
        close(draft.base_logits.reshape(-1, 40), proposals @ target.lm_head.double().T)
        assert draft.positions == (len(committed),) and draft.root.tolist() == [root]


def test_the_correction_along_a_path(tmp_path: Path) -> None:
    config = tiny_released("domino")
    weights = write(tmp_path / "domino", config)
    drafter = load_drafter(tmp_path / "domino", "domino", torch.float32, CPU)
    embedding = tiny_target().embedding
    z = torch.randn(6, 32, generator=torch.Generator().manual_seed(5))
    path = embedding[[3, 14, 15, 9, 2, 6]]
    states = drafter.gru_states(path.unsqueeze(0))[0]
    found = drafter.bottleneck(z, states) @ drafter.correction_rows.T
    for depth in range(6):
        state = plain_state(weights, path[: depth + 1].double())
        close(states[depth], state)
        close(found[depth], plain_correction(weights, z[depth].double(), state))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bf16_weights_are_read_as_they_are(tmp_path: Path, dtype: torch.dtype) -> None:
    weights = write(tmp_path / "domino", tiny_released("domino"))
    read = load_drafter(tmp_path / "domino", "domino", dtype, CPU).state_dict()
    assert all(read[key].dtype == dtype and torch.equal(read[key].double(), tensor) for key, tensor in weights.items())
