"""Drafter checkpoints: one strict reader for the released layouts and for ours, and the writer.

A mismatched checkpoint does not fail by itself, it only drafts badly, so everything is checked before a tensor is
used: the drafter kind against what the method needs, the label convention, every key and every shape. Safetensors
only, and never remote code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dominotree.errors import UserError
from dominotree.files import atomic_write
from dominotree.models.drafter import DRAFTERS, DFlashDrafter, DrafterConfig, DrafterKind, Sight

DOMINO_PROJECTORS = ("domino", "causal_v5")
HEAD_PREFIXES = ("logit_head.", "domino_head.")
WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

FULL, SLIDING = "full_attention", "sliding_attention"

NEUTRAL = {
    "attention_bias": False,
    "final_logit_softcapping": None,
    "hidden_act": "silu",
    "input_embedding_scale": 1.0,
    "mlp_bias": False,
    "model_type": "qwen3",
    "output_multiplier": 1.0,
    "partial_rotary_factor": 1.0,
    "quantization_config": None,
    "use_bias_gate": False,
}
"""Keys that make another network of a drafter, each with the value at which it is this one."""

SPECIAL = (
    "block_size",
    "causal",
    "emb_dim",
    "gru_hidden_dim",
    "is_causal",
    "mask_token",
    "mask_token_id",
    "num_target_layers",
    "projector_type",
    "pure_draft_prefix_len",
    "shift_label",
    "target_layer_ids",
)
"""What dflash_config may say; any of it may stand beside it, as in older checkpoints, or in domino_config, as in newer ones."""


@dataclass(frozen=True)
class _Raw:
    """A checkpoint's config.json, as it was read, and its tables dflash_config and domino_config; `path` is named in errors."""

    top: dict[str, Any]
    special: tuple[dict[str, Any], ...]
    path: Path

    def find(self, key: str, *elsewhere: dict[str, Any]) -> Any:
        """The value of `key`, wherever it stands, or None. Raises `UserError` if two places disagree."""
        found = [table[key] for table in (*self.special, self.top, *elsewhere) if table.get(key) is not None]
        if any(value != found[0] for value in found):
            raise UserError(f"{self.path}: '{key}' has two values, {found[0]} and {found[1]}")
        return found[0] if found else None

    def get(self, key: str, *elsewhere: dict[str, Any]) -> Any:
        """The value of `key`; raises `UserError` if it is missing."""
        value = self.find(key, *elsewhere)
        if value is None:
            raise UserError(f"{self.path}: '{key}' is missing; this is not a DFlash or Domino drafter's config")
        return value

    def whole(self, key: str, least: int = 1) -> int:
        value = self.get(key)
        if type(value) is not int or value < least:
            raise UserError(f"{self.path}: {key} should be a whole number of at least {least}, not {value}")
        return value

    def positive(self, key: str, *elsewhere: dict[str, Any]) -> float:
        value = self.get(key, *elsewhere)
        if type(value) not in (int, float) or not value > 0:
            raise UserError(f"{self.path}: {key} should be a number above 0, not {value}")
        return float(value)

    def target_layers(self) -> tuple[int, ...]:
        layers, count = self.get("target_layer_ids"), self.whole("num_target_layers")
        if not isinstance(layers, list) or not layers or not all(type(i) is int and 0 <= i < count for i in layers):
            raise UserError(f"{self.path}: target_layer_ids {layers} do not fit {count} target layers")
        return tuple(layers)

    def refuse_another_network(self) -> None:
        """Raise `UserError` on a key that asks for what this drafter does not compute."""
        for key, neutral in NEUTRAL.items():
            value = self.find(key)
            if value is not None and value != neutral:
                raise UserError(f"{self.path}: {key}={json.dumps(value)} makes another network, which this drafter is not")
        for key, value in chain(*(table.items() for table in self.special)):
            if key not in (*SPECIAL, *NEUTRAL) and value not in (None, False):
                raise UserError(f"{self.path}: the unknown key '{key}' may make another network than this drafter")

    def sights(self) -> tuple[Sight, ...]:
        """What each layer sees; sliding ones are causal, unless the config says what all are, as in z-lab's own network."""
        layers, kinds = self.whole("num_hidden_layers"), self.find("layer_types")
        if kinds is None and self.find("use_sliding_window"):
            raise UserError(f"{self.path}: use_sliding_window without layer_types, which say in which layers")
        if kinds is not None and (not isinstance(kinds, list) or len(kinds) != layers):
            raise UserError(f"{self.path}: layer_types does not name the kinds of {layers} layers")
        others = sorted(set(map(str, kinds or ())) - {FULL, SLIDING})
        if others:
            raise UserError(f"{self.path}: layers of {others[0]}, where only {FULL} and {SLIDING} are read")
        causal = self.flag("is_causal", "causal")
        window = self._window() if SLIDING in (kinds or ()) else None
        each = {
            FULL: Sight(None, bool(causal)),
            SLIDING: Sight(window, True if causal is None else causal),
        }
        found = tuple(each[kind] for kind in kinds or [FULL] * layers)
        return found if set(found) != {Sight()} else ()

    def _window(self) -> int:
        if self.find("use_sliding_window") is False:
            raise UserError(f"{self.path}: layers of {SLIDING}, and use_sliding_window=false; which of the two holds?")
        return self.whole("sliding_window")

    def flag(self, *keys: str) -> bool | None:
        """The value that keys for the same thing have, None if none is there."""
        values = {key: value for key in keys if (value := self.find(key)) is not None}
        for key, value in values.items():
            if value is not True and value is not False:
                raise UserError(f"{self.path}: {key} should be true or false, not {value}")
        if len(set(values.values())) > 1:
            raise UserError(
                f"{self.path}: {' and '.join(f'{key}={json.dumps(value)}' for key, value in values.items())} disagree"
            )
        return next(iter(values.values()), None)

    def rope_theta(self) -> float:
        ropes = [self.find(key) or {} for key in ("rope_parameters", "rope_scaling")]
        for rope in ropes:
            kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
            if kind != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
                raise UserError(f"{self.path}: rotary scaling {json.dumps(rope)} makes another network; only the default is read")
        return self.positive("rope_theta", *ropes)

    def shift_label(self, kind: DrafterKind) -> bool:
        """Whether slot i predicts the token after its own. A Domino drafter's config must say so: neither convention is safe."""
        value = self.flag("shift_label")
        if kind == "domino":
            return bool(self.get("shift_label"))
        if value:
            raise UserError(
                f"{self.path}: shift_label=true does not belong to a dflash drafter; "
                "read under the wrong label convention it would draft at tau 1"
            )
        return False


def parse_config(top: dict[str, Any], path: Path) -> DrafterConfig:
    """A checkpoint's config.json as a `DrafterConfig`; `path` is named in errors.

    What names remote code (auto_map) is passed over, never run. Raises `UserError` on a missing key or one with two values, an
    unknown projector, a label convention that a kind does not have, and on whatever makes another network: scaled rotary
    embeddings, biases, another activation.
    """
    if not isinstance(top, dict) or not isinstance(top.get("dflash_config"), dict):
        raise UserError(f"{path}: 'dflash_config' is missing; this is not a DFlash or Domino drafter's config")
    domino = top.get("domino_config", {})
    if not isinstance(domino, dict):
        raise UserError(f"{path}: domino_config should be a table of keys, not {json.dumps(domino)}")
    raw = _Raw(top, (top["dflash_config"], domino), path)
    projector = raw.find("projector_type")
    if projector is not None and projector not in DOMINO_PROJECTORS:
        raise UserError(f"{path}: unknown projector_type '{projector}' (known: {', '.join(DOMINO_PROJECTORS)}, or none)")
    kind: DrafterKind = "dflash" if projector is None else "domino"
    raw.refuse_another_network()
    head = {}
    if kind == "domino":
        head = {
            "pure_draft_prefix_len": raw.whole("pure_draft_prefix_len", 0),
            "gru_hidden_dim": raw.whole("gru_hidden_dim"),
            "emb_dim": raw.whole("emb_dim"),
        }
    config = DrafterConfig(
        kind=kind,
        hidden_size=raw.whole("hidden_size"),
        intermediate_size=raw.whole("intermediate_size"),
        num_hidden_layers=raw.whole("num_hidden_layers"),
        num_attention_heads=raw.whole("num_attention_heads"),
        num_key_value_heads=raw.whole("num_key_value_heads"),
        head_dim=raw.whole("head_dim", 2),
        vocab_size=raw.whole("vocab_size"),
        max_position_embeddings=raw.whole("max_position_embeddings"),
        rms_norm_eps=raw.positive("rms_norm_eps"),
        rope_theta=raw.rope_theta(),
        block_size=raw.whole("block_size", 2),
        mask_token_id=raw.whole("mask_token_id", 0),
        target_layer_ids=raw.target_layers(),
        num_target_layers=raw.whole("num_target_layers"),
        shift_label=raw.shift_label(kind),
        sights=raw.sights(),
        **head,
    )
    _check_ranges(config, path)
    return config


def _check_ranges(config: DrafterConfig, path: Path) -> None:
    if config.num_hidden_layers > config.num_target_layers:
        layers = f"num_hidden_layers {config.num_hidden_layers}"
        raise UserError(f"{path}: {layers} exceeds the target's {config.num_target_layers}, where a drafter has fewer")
    if config.mask_token_id >= config.vocab_size:
        raise UserError(f"{path}: mask_token_id {config.mask_token_id} is outside the vocabulary of {config.vocab_size}")
    if config.head_dim % 2:
        raise UserError(f"{path}: head_dim {config.head_dim} is odd, which no rotary embedding can turn")
    if config.num_attention_heads % config.num_key_value_heads:
        heads = f"{config.num_attention_heads} attention heads"
        raise UserError(f"{path}: {heads} cannot share num_key_value_heads={config.num_key_value_heads}")
    if config.pure_draft_prefix_len > config.num_proposals:
        proposals = f"the {config.num_proposals} tokens that a block proposes"
        raise UserError(f"{path}: pure_draft_prefix_len {config.pure_draft_prefix_len} exceeds {proposals}")


def read_config(directory: Path) -> DrafterConfig:
    """Read and check `directory`/config.json."""
    path = directory / CONFIG
    if not path.is_file():
        raise UserError(f"{directory}: no {CONFIG} there; a drafter checkpoint is a folder with {CONFIG} and {WEIGHTS}")
    return parse_config(_read_json(path), path)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error})") from None


def _weight_files(directory: Path) -> list[Path]:
    """The files of a checkpoint's tensors: the shards that its index names, or the one file."""
    if (directory / INDEX).is_file():
        index = _read_json(directory / INDEX)
        names = set(index.get("weight_map", {}).values()) if isinstance(index, dict) else set()
        if not names or not all(isinstance(name, str) and name == Path(name).name for name in names):
            raise UserError(f"{directory / INDEX}: its weight_map does not name the files of this folder")
        return [directory / name for name in sorted(names)]
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    pickles = sorted(path.name for path in directory.glob("*") if path.suffix in PICKLES)
    if pickles:
        raise UserError(f"{directory}: {pickles[0]} is a pickle, which can run code when read; convert it to {WEIGHTS}")
    raise UserError(f"{directory}: no {WEIGHTS} there")


def _canonical(key: str) -> str:
    for prefix in HEAD_PREFIXES:
        key = key.removeprefix(prefix)
    return key


def _read_tensors(directory: Path) -> dict[str, Tensor]:
    """All tensors by today's keys. Raises `UserError` if a file cannot be read or two hold the same tensor."""
    tensors: dict[str, Tensor] = {}
    for path in _weight_files(directory):
        if path.suffix != ".safetensors":
            raise UserError(f"{path}: only safetensors are read; convert it")
        try:
            with safe_open(path, framework="pt") as file:
                for key in file.keys():  # noqa: SIM118 (no mapping: it has no iterator)
                    if _canonical(key) in tensors:
                        raise UserError(f"{path}: {key} is there twice")
                    tensors[_canonical(key)] = file.get_tensor(key)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: cannot be read as safetensors ({error}); truncated or another format?") from None
    return tensors


def _check_tensors(tensors: dict[str, Tensor], expected: dict[str, Tensor], directory: Path) -> None:
    """Raise `UserError` naming the first tensor that is missing, unexpected, misshaped or quantised."""
    for what, keys in (("missing", expected.keys() - tensors.keys()), ("unexpected", tensors.keys() - expected.keys())):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise UserError(f"{directory}: tensor {what}: {min(keys)}{more}; config.json asks for {len(expected)} tensors")
    for key, tensor in tensors.items():
        shape, wanted = list(tensor.shape), list(expected[key].shape)
        if shape != wanted:
            raise UserError(f"{directory}: {key} has shape {shape}, config.json asks for {wanted}")
        if tensor.dtype not in DTYPES:
            raise UserError(f"{directory}: {key} is {tensor.dtype}, not of {', '.join(map(str, DTYPES))}")


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
            "shift_label": config.shift_label,
            "pure_draft_prefix_len": config.pure_draft_prefix_len,
            "gru_hidden_dim": config.gru_hidden_dim,
            "emb_dim": config.emb_dim,
        }
    sights = [config.sight(layer) for layer in range(config.num_hidden_layers)]
    windows = {sight.window for sight in sights if sight.window is not None}
    usual = all(sight.causal == (sight.window is not None) for sight in sights)
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
        **({} if usual else {"is_causal": sights[0].causal}),
        "layer_types": [FULL if sight.window is None else SLIDING for sight in sights],
        "max_position_embeddings": config.max_position_embeddings,
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "num_key_value_heads": config.num_key_value_heads,
        "num_target_layers": config.num_target_layers,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "sliding_window": next(iter(windows), None),
        "tie_word_embeddings": False,
        "use_sliding_window": bool(windows),
        "vocab_size": config.vocab_size,
    }


def save_drafter(drafter: DFlashDrafter, directory: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a drafter in the released layout; each file is renamed into place when it is complete."""
    tensors = {key: t.detach().to(dtype).contiguous() for key, t in drafter.state_dict().items()}
    with atomic_write(directory / WEIGHTS) as partial:
        save_file(tensors, partial, metadata={"format": "pt"})
    with atomic_write(directory / CONFIG) as partial:
        partial.write_text(json.dumps(released_config(drafter.config), indent=1) + "\n")
