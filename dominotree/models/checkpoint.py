"""Drafter checkpoints: one strict reader for the released layouts and for ours, and the writer.

A mismatched checkpoint does not fail by itself, it only drafts badly, so everything is checked before a tensor is
used: the drafter kind against what the method needs, the label convention, every key and every shape. Safetensors
only, and never remote code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dominotree.errors import UserError
from dominotree.files import atomic_write
from dominotree.models.drafter import DRAFTERS, DFlashDrafter, DrafterConfig, DrafterKind

DOMINO_PROJECTORS = ("domino", "causal_v5")
HEAD_PREFIXES = ("logit_head.", "domino_head.")
WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"


def _get(table: dict[str, Any], key: str, path: Path, *elsewhere: dict[str, Any]) -> Any:
    for place in (table, *elsewhere):
        if place.get(key) is not None:
            return place[key]
    raise UserError(f"{path}: '{key}' is missing; this is not a DFlash or Domino drafter's config")


def _rope_theta(raw: dict[str, Any], path: Path) -> float:
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UserError(f"{path}: rotary scaling '{kind}' is not supported in a drafter (only the default)")
    return float(_get(raw, "rope_theta", path, rope))


def _refuse_sliding_window(raw: dict[str, Any], path: Path) -> None:
    kinds = set(raw.get("layer_types") or ["full_attention"])
    if kinds != {"full_attention"} or raw.get("use_sliding_window"):
        raise UserError(f"{path}: layers {sorted(kinds)} need sliding-window attention, which this drafter does not have")


def parse_config(raw: dict[str, Any], path: Path) -> DrafterConfig:
    """A checkpoint's raw config.json as a `DrafterConfig`; `path` is named in errors.

    Raises `UserError` on a missing key, an unknown projector, sliding-window layers or a scaled rotary embedding.
    """
    special = _get(raw, "dflash_config", path)
    projector = special.get("projector_type")
    if projector is not None and projector not in DOMINO_PROJECTORS:
        raise UserError(f"{path}: unknown projector_type '{projector}' (known: {', '.join(DOMINO_PROJECTORS)}, or none)")
    kind: DrafterKind = "dflash" if projector is None else "domino"
    _refuse_sliding_window(raw, path)
    shift_label = bool(special.get("shift_label", False))
    if shift_label != (kind == "domino"):
        raise UserError(
            f"{path}: shift_label={str(shift_label).lower()} does not belong to a {kind} drafter; "
            "read under the wrong label convention it would draft at tau 1"
        )
    heads = int(_get(raw, "num_attention_heads", path))
    hidden = int(_get(raw, "hidden_size", path))
    head = {}
    if kind == "domino":
        head = {
            "pure_draft_prefix_len": int(_get(special, "pure_draft_prefix_len", path, raw)),
            "gru_hidden_dim": int(_get(special, "gru_hidden_dim", path, raw)),
            "emb_dim": int(_get(special, "emb_dim", path, raw)),
        }
    config = DrafterConfig(
        kind=kind,
        hidden_size=hidden,
        intermediate_size=int(_get(raw, "intermediate_size", path)),
        num_hidden_layers=int(_get(raw, "num_hidden_layers", path)),
        num_attention_heads=heads,
        num_key_value_heads=int(_get(raw, "num_key_value_heads", path)),
        head_dim=int(raw.get("head_dim") or hidden // heads),
        vocab_size=int(_get(raw, "vocab_size", path)),
        max_position_embeddings=int(_get(raw, "max_position_embeddings", path)),
        rms_norm_eps=float(_get(raw, "rms_norm_eps", path)),
        rope_theta=_rope_theta(raw, path),
        block_size=int(_get(special, "block_size", path, raw)),
        mask_token_id=int(_get(special, "mask_token_id", path)),
        target_layer_ids=tuple(int(i) for i in _get(special, "target_layer_ids", path)),
        num_target_layers=int(_get(raw, "num_target_layers", path)),
        shift_label=shift_label,
        **head,
    )
    _check_ranges(config, path)
    return config


def _check_ranges(config: DrafterConfig, path: Path) -> None:
    if config.block_size < 2:
        raise UserError(f"{path}: block_size {config.block_size} leaves nothing to draft (at least 2)")
    if not 0 <= config.mask_token_id < config.vocab_size:
        raise UserError(f"{path}: mask_token_id {config.mask_token_id} is outside the vocabulary of {config.vocab_size}")
    layers, count = list(config.target_layer_ids), config.num_target_layers
    if not layers or not all(0 <= layer < count for layer in layers):
        raise UserError(f"{path}: target_layer_ids {layers} do not fit {count} target layers")


def read_config(directory: Path) -> DrafterConfig:
    """Read and check `directory`/config.json."""
    path = directory / CONFIG
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{directory}: no {CONFIG} there; a drafter checkpoint is a folder with {CONFIG} and {WEIGHTS}") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: not valid JSON ({error})") from None
    return parse_config(raw, path)


def _weight_files(directory: Path) -> list[Path]:
    if (directory / INDEX).is_file():
        names = json.loads((directory / INDEX).read_text())["weight_map"].values()
        return [directory / name for name in sorted(set(names))]
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    pickles = sorted(p.name for p in directory.glob("*") if p.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"))
    if pickles:
        raise UserError(f"{directory}: {pickles[0]} is a pickle, which can run code when read; convert it to {WEIGHTS}")
    raise UserError(f"{directory}: no {WEIGHTS} there")


def _canonical(key: str) -> str:
    for prefix in HEAD_PREFIXES:
        key = key.removeprefix(prefix)
    return key


def _read_tensors(directory: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in _weight_files(directory):
        try:
            with safe_open(path, framework="pt") as file:
                for key in file.keys():  # noqa: SIM118 (no mapping: it has no iterator)
                    tensors[_canonical(key)] = file.get_tensor(key)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: cannot be read as safetensors ({error}); truncated or another format?") from None
    return tensors


def _check_tensors(tensors: dict[str, Tensor], expected: dict[str, Tensor], directory: Path) -> None:
    missing, unexpected = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unexpected:
        raise UserError(f"{directory}: tensors missing: {missing or 'none'}; unexpected: {unexpected or 'none'}")
    for key, tensor in tensors.items():
        shape, wanted = list(tensor.shape), list(expected[key].shape)
        if shape != wanted:
            raise UserError(f"{directory}: {key} has shape {shape}, config.json asks for {wanted}")
        if not tensor.is_floating_point():
            raise UserError(f"{directory}: {key} is {tensor.dtype}, not a floating-point tensor")


def load_drafter(directory: Path, kind: DrafterKind, dtype: torch.dtype, device: torch.device) -> DFlashDrafter:
    """Read a drafter checkpoint of the given kind.

    Raises `UserError` if the folder holds a drafter of the other kind, another label convention, a pickle, a missing,
    unexpected or misshaped tensor, or a truncated file.
    """
    config = read_config(directory)
    if config.kind != kind:
        raise UserError(f"{directory}: this is a {config.kind} drafter, where a {kind} drafter is needed")
    with torch.device("meta"):
        drafter = DRAFTERS[kind](config)
    tensors = _read_tensors(directory)
    _check_tensors(tensors, drafter.state_dict(), directory)
    drafter.load_state_dict({key: t.to(device=device, dtype=dtype) for key, t in tensors.items()}, assign=True)
    return drafter.requires_grad_(False).eval()


def released_config(config: DrafterConfig) -> dict[str, Any]:
    """`config` in the keys of the released checkpoints' config.json."""
    special: dict[str, Any] = {"mask_token_id": config.mask_token_id, "target_layer_ids": list(config.target_layer_ids)}
    if config.kind == "domino":
        special |= {
            "projector_type": "domino",
            "shift_label": True,
            "pure_draft_prefix_len": config.pure_draft_prefix_len,
            "gru_hidden_dim": config.gru_hidden_dim,
            "emb_dim": config.emb_dim,
        }
    return {
        "architectures": ["DominoDraftModel" if config.kind == "domino" else "DFlashDraftModel"],
        "model_type": "qwen3",
        "attention_bias": False,
        "block_size": config.block_size,
        "dflash_config": special,
        "dtype": "bfloat16",
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "layer_types": ["full_attention"] * config.num_hidden_layers,
        "max_position_embeddings": config.max_position_embeddings,
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "num_key_value_heads": config.num_key_value_heads,
        "num_target_layers": config.num_target_layers,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vocab_size": config.vocab_size,
    }


def save_drafter(drafter: DFlashDrafter, directory: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a drafter in the released layout; each file is renamed into place when it is complete."""
    tensors = {key: t.detach().to(dtype).contiguous() for key, t in drafter.state_dict().items()}
    with atomic_write(directory / WEIGHTS) as partial:
        save_file(tensors, partial, metadata={"format": "pt"})
    with atomic_write(directory / CONFIG) as partial:
        partial.write_text(json.dumps(released_config(drafter.config), indent=1) + "\n")
