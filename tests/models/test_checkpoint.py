"""The strict reader: what it takes, and the one line it gives for everything it refuses."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dominotree.errors import UserError
from dominotree.models.checkpoint import load_drafter, read_config, save_drafter
from dominotree.models.drafter import Sight
from dominotree.models.target import check_pair
from dominotree.paths import ASSETS
from tests.tiny import tiny_config, tiny_drafter, tiny_target

CPU = torch.device("cpu")

DFLASH_KEYS = {
    *(f"layers.{i}.self_attn.{p}_proj.weight" for i in range(2) for p in "qkvo"),
    *(f"layers.{i}.self_attn.{p}_norm.weight" for i in range(2) for p in "qk"),
    *(f"layers.{i}.mlp.{p}_proj.weight" for i in range(2) for p in ("gate", "up", "down")),
    *(f"layers.{i}.{p}_layernorm.weight" for i in range(2) for p in ("input", "post_attention")),
    "fc.weight",
    "hidden_norm.weight",
    "norm.weight",
}
DOMINO_KEYS = DFLASH_KEYS | {
    "prefix_gru.weight_ih_l0",
    "prefix_gru.weight_hh_l0",
    "embed_proj.0.weight",
    "embed_proj.2.weight",
}


def save(tmp_path: Path, kind: str) -> Path:
    save_drafter(tiny_drafter(kind), tmp_path / kind, torch.float32)
    return tmp_path / kind


def edit_config(folder: Path, **changes: object) -> None:
    """Set keys of config.json; a dotted key reaches into dflash_config, None removes."""
    raw = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        table = raw["dflash_config"] if key in raw["dflash_config"] or key.startswith("special_") else raw
        key = key.removeprefix("special_")
        table.pop(key, None) if value is None else table.update({key: value})
    (folder / "config.json").write_text(json.dumps(raw))


def edit_tensors(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def refused(folder: Path, kind: str, *words: str) -> None:
    with pytest.raises(UserError) as caught:
        load_drafter(folder, kind, torch.float32, CPU)
    line = str(caught.value)
    assert "\n" not in line
    for word in (*words, folder.name):
        assert word in line


@pytest.mark.parametrize(("kind", "keys"), [("dflash", DFLASH_KEYS), ("domino", DOMINO_KEYS)])
def test_layout_is_the_released_one(tmp_path, kind, keys):
    assert load_file(save(tmp_path, kind) / "model.safetensors").keys() == keys


@pytest.mark.parametrize("kind", ["dflash", "domino"])
def test_what_is_saved_is_read(tmp_path, kind):
    original, read = tiny_drafter(kind), load_drafter(save(tmp_path, kind), kind, torch.float32, CPU)
    assert read.config == original.config
    for key, tensor in original.state_dict().items():
        assert torch.equal(read.state_dict()[key], tensor)


@pytest.mark.parametrize(
    "sights",
    [
        (Sight(4, True), Sight()),
        (Sight(4, False), Sight(4, False)),
        (Sight(4, False), Sight()),
        (Sight(None, True), Sight(4, True)),
        (Sight(None, True),) * 2,
    ],
)
def test_what_layers_see_is_saved_and_read(tmp_path, sights):
    save_drafter(tiny_drafter("dflash", sights=sights), tmp_path)
    assert load_drafter(tmp_path, "dflash", torch.float32, CPU).config.sights == sights


@pytest.mark.parametrize("shift_label", [False, True])
def test_a_domino_drafter_may_drop_slot_0(tmp_path, shift_label):
    save_drafter(tiny_drafter("domino", shift_label=shift_label), tmp_path)
    config = load_drafter(tmp_path, "domino", torch.float32, CPU).config
    assert (config.shift_label, config.num_proposals) == (shift_label, 6 if shift_label else 5)


@pytest.mark.parametrize("prefix", ["logit_head.", "domino_head."])
def test_older_key_prefixes(tmp_path, prefix):
    folder = save(tmp_path, "domino")

    def rename(tensors):
        for key in [k for k in tensors if k.startswith(("prefix_gru", "embed_proj"))]:
            tensors[prefix + key] = tensors.pop(key)

    edit_tensors(folder, rename)
    assert load_drafter(folder, "domino", torch.float32, CPU).config.emb_dim == 6


def test_older_config_spellings(tmp_path):
    folder = save(tmp_path, "domino")
    edit_config(folder, projector_type="causal_v5", block_size=None, emb_dim=None)
    edit_config(folder, special_block_size=6)
    raw = json.loads((folder / "config.json").read_text()) | {"emb_dim": 6}
    (folder / "config.json").write_text(json.dumps(raw))
    assert read_config(folder) == tiny_config("domino")


def shard(folder: Path) -> dict[str, str]:
    """Split a checkpoint into two files with an index; returns the index's map."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = {key: f"model-0000{i % 2 + 1}-of-00002.safetensors" for i, key in enumerate(tensors)}
    for name in set(files.values()):
        save_file({k: t for k, t in tensors.items() if files[k] == name}, folder / name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return files


def test_shards(tmp_path):
    folder = save(tmp_path, "domino")
    shard(folder)
    read = load_drafter(folder, "domino", torch.float32, CPU).state_dict()
    assert all(torch.equal(tensor, read[key]) for key, tensor in tiny_drafter("domino").state_dict().items())
    assert read.keys() == DOMINO_KEYS


def test_missing_shard(tmp_path):
    folder = save(tmp_path, "domino")
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused(folder, "domino", "model-00002-of-00002.safetensors")


def test_a_tensor_in_two_shards(tmp_path):
    folder = save(tmp_path, "domino")
    shard(folder)
    path = folder / "model-00002-of-00002.safetensors"
    save_file(load_file(path) | {"logit_head.embed_proj.0.weight": torch.zeros(6, 44)}, path)
    first = folder / "model-00001-of-00002.safetensors"
    save_file(load_file(first) | {"embed_proj.0.weight": torch.zeros(6, 44)}, first)
    refused(folder, "domino", "embed_proj.0.weight is there twice")


@pytest.mark.parametrize(
    "index", ["{", "[]", "{}", '{"weight_map": {"fc.weight": "../model.safetensors"}}', '{"weight_map": {"fc.weight": 3}}']
)
def test_broken_index(tmp_path, index):
    folder = save(tmp_path, "dflash")
    (folder / "model.safetensors.index.json").write_text(index)
    refused(folder, "dflash", "model.safetensors.index.json")


def test_an_index_of_pickles(tmp_path):
    folder = save(tmp_path, "dflash")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"fc.weight": "pytorch_model.bin"}}')
    refused(folder, "dflash", "pytorch_model.bin", "only safetensors")


def test_other_kind(tmp_path):
    refused(save(tmp_path, "domino"), "dflash", "domino drafter", "dflash drafter is needed")
    refused(save(tmp_path, "dflash"), "domino", "dflash drafter", "domino drafter is needed")


@pytest.mark.parametrize(("kind", "value"), [("domino", None), ("dflash", True)])
def test_wrong_label_convention(tmp_path, kind, value):
    """A Domino drafter has either, and says which."""
    folder = save(tmp_path, kind)
    edit_config(folder, special_shift_label=value)
    refused(folder, kind, "shift_label")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"special_projector_type": "eagle"}, "projector_type"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": None}, "sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4}, "use_sliding_window=false"),
        ({"layer_types": ["sliding_attention"] * 2, "use_sliding_window": True, "sliding_window": 0}, "sliding_window"),
        ({"layer_types": None, "use_sliding_window": True, "sliding_window": 4}, "layer_types"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "yarn"),
        ({"hidden_size": None}, "hidden_size"),
        ({"target_layer_ids": [0, 99]}, "target_layer_ids"),
        ({"target_layer_ids": []}, "target_layer_ids"),
        ({"target_layer_ids": 3}, "target_layer_ids"),
        ({"mask_token_id": 10_000}, "mask_token_id"),
        ({"block_size": 1}, "block_size"),
        ({"gru_hidden_dim": None}, "gru_hidden_dim"),
        ({"hidden_size": "32"}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rope_theta": None}, "rope_theta"),
        ({"head_dim": None}, "head_dim"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"pure_draft_prefix_len": 7}, "pure_draft_prefix_len"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": None, "num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "linear"),
        ({"rope_scaling": {"type": "dynamic"}}, "dynamic"),
        ({"rope_scaling": "yarn"}, "yarn"),
        ({"rope_scaling": {"rope_type": "yarn"}, "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}, "yarn"),
        ({"head_dim": 7}, "head_dim"),
        ({"shift_label": "false"}, "shift_label"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_theta": 1e6}}, "rope_theta"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"model_type": "llama"}, "model_type"),
        ({"is_causal": "no"}, "is_causal"),
        ({"is_causal": True, "special_causal": False}, "disagree"),
        ({"quantization_config": {"bits": 8}}, "quantization_config"),
        ({"special_final_logit_softcapping": 20.0}, "final_logit_softcapping"),
        ({"special_output_multiplier": 0.2}, "output_multiplier"),
        ({"special_input_embedding_scale": 2.0}, "input_embedding_scale"),
        ({"special_use_bias_gate": True}, "use_bias_gate"),
        ({"special_conv_kernel_size": 2}, "conv_kernel_size"),
        ({"domino_config": 3}, "domino_config"),
        ({"domino_config": {"head_type": "lstm"}}, "head_type"),
        ({"domino_config": {"emb_dim": 7}}, "emb_dim"),
    ],
)
def test_config_that_does_not_fit(tmp_path, changes, word):
    folder = save(tmp_path, "domino")
    edit_config(folder, **changes)
    refused(folder, "domino", word)


def test_two_values_of_one_key(tmp_path):
    folder = save(tmp_path, "domino")
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"emb_dim": 7}))
    refused(folder, "domino", "'emb_dim' has two values, 6 and 7")


@pytest.mark.parametrize("raw", [[], {}, {"dflash_config": 3}])
def test_another_config(tmp_path, raw):
    folder = save(tmp_path, "dflash")
    (folder / "config.json").write_text(json.dumps(raw))
    refused(folder, "dflash", "dflash_config")


def test_remote_code_is_passed_over(tmp_path):
    folder = save(tmp_path, "dflash")
    edit_config(folder, auto_map={"AutoModel": "dflash.DFlashDraftModel"})
    (folder / "dflash.py").write_text("raise SystemExit('remote code ran')")
    assert load_drafter(folder, "dflash", torch.float32, CPU).state_dict().keys() == DFLASH_KEYS


@pytest.mark.parametrize("key", ["fc.weight", "layers.1.self_attn.k_norm.weight", "embed_proj.2.weight"])
def test_missing_tensor(tmp_path, key):
    folder = save(tmp_path, "domino")
    edit_tensors(folder, lambda tensors: tensors.pop(key))
    refused(folder, "domino", f"missing: {key};", "29 tensors")


def test_many_missing_tensors_are_one_line(tmp_path):
    folder = save(tmp_path, "domino")
    edit_tensors(folder, lambda tensors: [tensors.pop(key) for key in list(tensors) if key.startswith("layers.1.")])
    refused(folder, "domino", "missing: layers.1.input_layernorm.weight and 10 more;")


def test_unexpected_tensor(tmp_path):
    folder = save(tmp_path, "dflash")
    edit_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(2)}))
    refused(folder, "dflash", "unexpected", "lm_head.weight")


def test_misshaped_tensor(tmp_path):
    folder = save(tmp_path, "dflash")
    edit_tensors(folder, lambda tensors: tensors.update({"fc.weight": torch.zeros(32, 32)}))
    refused(folder, "dflash", "fc.weight", "[32, 32]", "[32, 64]")


@pytest.mark.parametrize("dtype", [torch.int64, torch.float8_e4m3fn])
def test_quantised_tensor(tmp_path, dtype):
    folder = save(tmp_path, "dflash")
    edit_tensors(folder, lambda tensors: tensors.update({"norm.weight": torch.zeros(32).to(dtype)}))
    refused(folder, "dflash", "norm.weight", str(dtype))


def test_pickle_is_never_opened(tmp_path):
    folder = save(tmp_path, "dflash")
    (folder / "model.safetensors").unlink()

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    refused(folder, "dflash", "pickle")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_truncated_file(tmp_path, share):
    path = save(tmp_path, "dflash") / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    refused(path.parent, "dflash", "safetensors")


def test_nothing_there(tmp_path):
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "dflash", "config.json")
    folder = save(tmp_path, "dflash")
    (folder / "model.safetensors").unlink()
    refused(folder, "dflash", "model.safetensors")
    (folder / "config.json").write_text("{")
    refused(folder, "dflash", "JSON")


@pytest.mark.parametrize("changes", [{"hidden_size": 16}, {"vocab_size": 7, "mask_token_id": 6}, {"num_target_layers": 9}])
def test_drafter_of_another_target(changes):
    with pytest.raises(UserError, match=r"drafter"):
        check_pair(tiny_target().config, tiny_config("dflash", **changes), "here")


@pytest.mark.parametrize("kind", ["dflash", "domino"])
def test_the_shipped_drafters(kind):
    folder = ASSETS / f"smollm2-135m-{kind}"
    drafter = load_drafter(folder, kind, torch.float32, CPU)
    assert drafter.config.block_size == 8
    assert (folder / "model.safetensors").stat().st_size <= 20_000_000
