"""What tests of several rooms share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from tests.pipeline import snakemake  # noqa: F401 (a fixture of several rooms)

settings.register_profile("unhurried", deadline=None)  # a busy machine is no fault
settings.load_profile("unhurried")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
# Models this small only lose by sharing their work, and the cores have other tests to run.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # the processes that tests start, too
MOST_WORKERS = 8  # each holds models of its own

WORDS = (
    "<pad> <start> <end> system user assistant you help please add two and three what is the sum write a poem story "
    "why how tell me explain list numbers"
)
TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<start> system you help <end> {% endif %}"
    "{% for message in messages %}<start> {{ message['role'] }} {{ message['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<start> assistant {% endif %}"
)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """All tests together run on all cores, unless `-n` says otherwise; a part of them runs in this process, without a start-up.

    Neighbours stay on one worker, which makes their fixtures once; one that has run out takes half of what another has left.
    """
    worker = hasattr(config, "workerinput")
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not worker
    if whole and config.pluginmanager.hasplugin("xdist") and config.option.numprocesses is None:
        config.option.numprocesses, config.option.dist = "logical", "worksteal"
        config.option.maxprocesses = config.option.maxprocesses or MOST_WORKERS


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[[str | None], Any]:
    """Makes tokenizers of a few whole words with the given chat template; `<end>` ends a turn, `<pad>` is unknown words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS.split())}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

    def make(template: str | None = TEMPLATE) -> Any:
        return PreTrainedTokenizerFast(
            tokenizer_object=words, bos_token="<start>", eos_token="<end>", unk_token="<pad>", chat_template=template
        )

    return make


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory, make_tokenizer: Callable[[], Any]) -> Path:
    """A folder with a tiny random target with a tokenizer (`target`), and a drafter of each kind (`dflash`, `domino`)."""
    from dominotree.models.checkpoint import save_drafter
    from tests.tiny import tiny_drafter, tiny_target

    folder = tmp_path_factory.mktemp("tiny")
    model = tiny_target(0).model
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder / "target")
    make_tokenizer().save_pretrained(folder / "target")
    for kind in ("dflash", "domino"):
        save_drafter(tiny_drafter(kind), folder / kind, torch.float32)
    return folder


@pytest.fixture
def tiny_overrides(tiny_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Overrides that make a run small: tiny models, a few prompts and tokens, results and caches in a folder of the test."""
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    return [
        "model=local",
        "model.dtype=float32",
        f"model.target={tiny_models / 'target'}",
        f"model.drafters.dflash={tiny_models / 'dflash'}",
        f"model.drafters.domino={tiny_models / 'domino'}",
        "cost_model.sizes=[1,4,16]",
        "cost_model.contexts=[0]",
        "cost_model.repeats=1",
        "cost_model.warmups=1",
        "method.dominotree.candidate_width=12",
        "method.dominotree.children=4",
        "method.static.candidate_width=12",
        "method.static.children=4",
        "method.caddtree.cap=16",
        "method.adaptive.cap=16",
        "method.adaptive.candidate_width=12",
        "method.adaptive.children=4",
        "method.loadaware.candidate_width=12",
        "method.loadaware.children=4",
        "method.dartree.candidate_width=12",
        "method.dartree.children=12",
        "max_new_tokens=10",
        "engine.threads=1",
        "dataset.num_prompts=3",
        f"results={tmp_path / 'results'}",
        "tracking=disabled",
    ]
