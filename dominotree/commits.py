"""The commits that a run's names on the Hub stand for: looked up once, when a run starts, and kept to from then on.

A branch may move while a run lasts, or before it is resumed. So configuration, tokenizer, weights and prompts are all asked
for by commit, the journal belongs to the commits, and every record says which they were.
"""

from __future__ import annotations

from dataclasses import replace

from dominotree.config import DatasetConfig, RunConfig
from dominotree.hub import MAIN, resolve
from dominotree.methods import METHODS
from dominotree.models.target import target_commit
from dominotree.prompts import DATASETS
from dominotree.prompts.sources import HubSource


def pin(config: RunConfig) -> RunConfig:
    """`config` with the commit in place of every revision that the run reads from the Hub. Raises as `hub.resolve` does."""
    model, dataset, source = config.model, config.dataset, _source(config.dataset)
    target = target_commit(model.target, model.revision)
    drafters = {kind: resolve(name, model.drafter_revisions.get(kind) or MAIN) for kind, name in _drafters(config).items()}
    if source:
        dataset = replace(dataset, hub=replace(source, revision=resolve(source.repo, source.revision, "dataset")))
    model = replace(model, revision=target or model.revision, drafter_revisions=model.drafter_revisions | drafters)
    return replace(config, model=model, dataset=dataset)


def commits(config: RunConfig) -> dict[str, str]:
    """Of a pinned run: commits by what they are of, `model Qwen/Qwen3-4B` or `dataset openai/gsm8k`."""
    model, source = config.model, _source(config.dataset)
    found = {f"model {name}": model.drafter_revisions[kind] for kind, name in _drafters(config).items()}
    if commit := target_commit(model.target, model.revision):
        found[f"model {model.target}"] = commit
    if source:
        found[f"dataset {source.repo}"] = source.revision
    return found


def _drafters(config: RunConfig) -> dict[str, str]:
    """Of the drafters that the arms need, those on the Hub, by kind."""
    kinds = {METHODS[arm.method].drafter for arm in config.arms} - {None}
    names = {kind: config.model.drafter_on_hub(kind) for kind in sorted(kinds)}
    return {kind: name for kind, name in names.items() if name}


def _source(dataset: DatasetConfig) -> HubSource | None:
    """Where on the Hub the prompts come from; None if from a file."""
    return None if dataset.path or DATASETS[dataset.name].path else dataset.hub
