"""Composing conf/: runs, studies and sweeps from overrides. The only place that knows Hydra.

Hydra composes, the schemas of `config` check, and a fault of either becomes a `UserError` of one line, before any compute.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from dataclasses import fields as dataclass_fields
from itertools import chain, product
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dominotree.arms import MAY_BE_NULL, MethodSettings, parse_arms
from dominotree.config import (
    DraftersConfig,
    Grid,
    Job,
    Name,
    RunConfig,
    ServedArm,
    ServedRun,
    ServerConfig,
    Study,
    TablesConfig,
    TrackingConfig,
    parse,
)
from dominotree.errors import UserError
from dominotree.paths import cache_dir
from dominotree.spelling import hint

CONF = Path(__file__).parent.parent / "conf"
GRID = {"dataset": "datasets=[chat]", "temperature": "temperatures=[0.5]", "arms": "arms=[ar,dominotree]"}
"""What a grid owns, and how an override of the grid is spelled, after its name."""

MEASURE = "measure"
"""The source of records that are measured here."""

SERVE = "serve"
"""The source of records that are measured on a server."""

OmegaConf.register_new_resolver("cache", lambda name: str(cache_dir() / name), replace=True)


def compose_run(overrides: Sequence[str]) -> RunConfig:
    """The run that `python -m dominotree.run` would measure with these overrides."""
    keys = _changed_keys(overrides)
    with _composing() as compose:
        return _run_config(compose("run", overrides), keys)


def compose_drafters(overrides: Sequence[str]) -> DraftersConfig:
    """conf/drafters.yaml with these overrides."""
    _changed_keys(overrides)
    with _composing() as compose:
        return parse(DraftersConfig, _plain(compose("drafters", overrides)))


def load_study(name: str, variant: str | None = None, overrides: Sequence[str] = ()) -> Study:
    """A study of conf/study/, or its `variant` with overrides of what its grids do not own."""
    keys = _changed_keys(overrides)
    for key in keys:
        if key in GRID:
            raise UserError(f"{key} belongs to the grids of study {name}; override grids.main.{GRID[key]} instead")
        if key in ("study", "variant", "grid"):
            raise UserError(f"{key} is not an override; write --config {key}=...")
    if variant:
        parse(Name, variant, "variant")
    of_numbers = tuple(text for text, key in zip(overrides, keys, strict=True) if not _is_of_tables(key))
    if of_numbers and not variant:
        raise UserError(f"overrides make another study: name it, as in --config variant=mine 'overrides=[\"{of_numbers[0]}\"]'")
    base = [f"study={name}", *([f"variant={variant}"] if variant else []), *overrides]
    with _composing() as compose:
        node = compose("run", base)
        grids = parse(dict[str, Grid] | None, _plain(node.grids), "grids")
        if not grids:
            raise UserError(f"study {name} has no grids, so that there is nothing to measure or to tabulate")
        measured = grids if node.source == MEASURE else {}
        runs = tuple(_runs(lambda dataset: compose("run", [*base, f"dataset={dataset}"]), measured, keys))
        served = _served(lambda dataset: compose("run", [*base, f"dataset={dataset}"]), grids) if node.source == SERVE else ()
    labels = {run.grid: tuple(arm.label for arm in run.arms) for run in runs}
    return Study(
        name=f"{name}-{variant}" if variant else name,
        source=parse(Name, node.source, "source"),
        job=parse(Job, node.job, "job"),
        results=parse(str, node.results, "results"),
        grids={name: replace(grid, arms=labels.get(name, grid.arms)) for name, grid in grids.items()},
        runs=runs,
        served=tuple(served),
        overrides=of_numbers,
        tables=parse(TablesConfig, _plain(node.tables), "tables"),
        tracking=parse(TrackingConfig, _plain(node.tracking), "tracking"),
    )


def _runs(compose: Callable[[str], DictConfig], grids: Mapping[str, Grid], keys: Sequence[str]) -> Iterator[RunConfig]:
    """The runs of all grids; composing, which is slow, is done once for each dataset."""
    nodes = {dataset: compose(dataset) for dataset in dict.fromkeys(chain(*(grid.datasets for grid in grids.values())))}
    for name, grid in grids.items():
        for dataset, temperature in product(grid.datasets, grid.temperatures):
            node = nodes[dataset]
            node.grid, node.temperature = name, temperature
            yield _run_config(node, keys)


def _served(compose: Callable[[str], DictConfig], grids: Mapping[str, Grid]) -> list[ServedRun]:
    """The served runs of all grids, which say which arms, temperatures and loads."""
    values = {name: _plain(compose(name)) for name in dict.fromkeys(chain(*(grid.datasets for grid in grids.values())))}
    return [
        _served_run(values[dataset] | {"grid": name, "temperature": temperature}, grid)
        for name, grid in grids.items()
        for dataset, temperature in product(grid.datasets, grid.temperatures)
    ]


def _served_run(values: dict[str, Any], grid: Grid) -> ServedRun:
    if values.get("server") is None:
        raise UserError(f"study {values['study']} names no server; choose one, as in its defaults: override /server: sglang")
    values["server"] |= {} if grid.stream is None else {"stream": grid.stream}
    server = parse(ServerConfig, values["server"], "server")
    own = {key: getattr(grid, key) or values[key] for key in ("max_new_tokens", "concurrency")}
    dataset = values["dataset"] | {"num_prompts": grid.num_prompts or values["dataset"]["num_prompts"]}
    fields = {field.name for field in dataclass_fields(ServedRun)}
    known = {key: value for key, value in values.items() if key in fields}
    arms = [asdict(_served_arm(label, server)) for label in grid.arms]
    return parse(ServedRun, known | own | {"dataset": dataset, "arms": arms})


def _served_arm(label: str, server: ServerConfig) -> ServedArm:
    """`dominotree@32`: a method of the server, with a budget where its flags have a place for one."""
    method, _, budget = label.partition("@")
    if method not in server.methods:
        raise UserError(f"arms: the server has no method '{method}'{hint(method, server.methods)}")
    takes = any("{budget}" in flag or "{slots}" in flag for flag in server.methods[method].flags)
    if takes and not (budget.isdecimal() and int(budget)):
        raise UserError(f"arms: '{label}': the budget must be a positive number of nodes, as in {method}@32")
    if budget and not takes:
        raise UserError(f"arms: '{label}': {method} has no budget on this server; write '{method}'")
    return ServedArm(label, method, int(budget) if takes else None)


def study_from_snakemake(config: Mapping[str, Any]) -> Study:
    """The study of `snakemake --config study=... variant=... tracking=... 'overrides=[...]'`, whose values come as YAML."""
    known = ("study", "variant", "overrides", "tracking")
    for key in config:
        if key not in known:
            raise UserError(f"--config {key}: unknown{hint(key, known)}")
    overrides = config.get("overrides") or []
    overrides = [overrides] if isinstance(overrides, str) else overrides
    if not isinstance(overrides, list) or not all(isinstance(override, str) for override in overrides):
        raise UserError("--config overrides: write a list of texts, as in 'overrides=[\"method.dominotree.candidate_width=32\"]'")
    variant = config.get("variant")
    if "tracking" in config:
        parse(TrackingConfig, {"mode": config["tracking"]}, "--config tracking")
    return load_study(str(config.get("study", "demo")), None if variant is None else str(variant), overrides)


def runs_from_command_line() -> list[RunConfig]:
    """The run that sys.argv asks for, or all runs of a sweep (-m); none where it asks for something else, as --cfg does.

    Hydra does no more than compose them, so that every one is checked before the first is measured.
    """
    composed: list[tuple[DictConfig, list[str]]] = []

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name="run")
    def collect(node: DictConfig) -> None:
        composed.append((node, list(HydraConfig.get().overrides.task)))

    _changed_keys([word for word in sys.argv[1:] if "=" in word and not word.startswith("-")])
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that Hydra raises its errors, instead of printing them in its own way
    with _in_one_line():
        collect()
    return [_run_config(node, _changed_keys(overrides)) for node, overrides in composed]


def _run_config(node: DictConfig, keys: Sequence[str]) -> RunConfig:
    """The checked run of a composed configuration, of which overrides changed `keys`."""
    _check_grid(node)
    values = _plain(node)
    del values["source"], values["job"], values["tables"]  # of a study, not of a run
    values.pop("server", None)  # of a run on a server
    if values["grid"] and "dataset.num_prompts" not in keys:
        # Not in the study's file, where it would replace a set's own number in the grids that have none.
        values["dataset"]["num_prompts"] = values["grids"][values["grid"]].get("num_prompts") or values["dataset"]["num_prompts"]
    if values["grid"] and "concurrency" not in keys:
        values["concurrency"] = values["grids"][values["grid"]].get("concurrency") or values["concurrency"]
    methods, variants = values.pop("method"), values.pop("variants")
    for where, settings in (("method", methods), ("variants", variants)):
        parse(dict[Name, MethodSettings], settings, where)
        for name, given in settings.items():
            for key, value in given.items():
                if value is None and key not in MAY_BE_NULL:
                    raise UserError(f"{where}.{name}.{key} should have a value, not null")
    texts = parse(tuple[str, ...], values["arms"], "arms")
    run = parse(RunConfig, values | {"arms": [asdict(arm) for arm in parse_arms(texts, methods, variants)]})
    if run.grid:
        _check_grid_point(run, texts, keys)
    return run


def _check_grid(node: DictConfig) -> None:
    """A study is measured grid by grid, and nothing but a study has grids."""
    if node.source != MEASURE:
        raise UserError(f"study {node.study} is not measured here; its records come with snakemake --config study={node.study}")
    if node.grid not in (node.grids or [None]):
        raise UserError(f"grid: study {node.study} has no grid '{node.grid}'{hint(str(node.grid), node.grids or ())}")


def _check_grid_point(run: RunConfig, arms: tuple[str, ...], keys: Sequence[str]) -> None:
    """A run of a study is a point of its grid, and as the study says unless it has a variant's name."""
    grid = run.grids[run.grid]
    for key, value, known in (
        ("dataset", run.dataset.name, grid.datasets),
        ("temperature", run.temperature, grid.temperatures),
        ("arms", arms, [grid.arms]),
    ):
        if value not in known:
            where = f"grid {run.grid} of study {run.study}"
            raise UserError(f"{key} belongs to {where}; under a variant, override grids.{run.grid}.{GRID[key]}")
    foreign = [key for key in keys if key not in ("study", "variant", "grid", *GRID) and not _is_of_tables(key)]
    if foreign and not run.variant:
        raise UserError(f"{foreign[0]} makes another study of {run.study}: name it, as in variant=mine")


def _is_of_tables(key: str) -> bool:
    """Whether a key decides how numbers are shown, and not what they are."""
    return key.partition(".")[0] == "tables"


def _changed_keys(overrides: Sequence[str]) -> list[str]:
    """The keys that `overrides` change. Raises `UserError` on one that adds or deletes, or chooses no option of its group."""
    with _in_one_line():
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    for override in parsed:
        if override.type is not OverrideType.CHANGE:
            raise UserError(f"'{override.input_line}': write it as key=value; nothing can be added or deleted")
        if (CONF / override.key_or_group).is_dir() and isinstance(override.value(), float | int | None):
            raise UserError(f"'{override.input_line}': takes the name of an option, as conf/ holds them")
    return [override.key_or_group for override in parsed]


def _plain(node: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain Python objects, every reference resolved."""
    with _in_one_line():
        return OmegaConf.to_container(node, resolve=True, throw_on_missing=True)


@contextmanager
def _composing() -> Iterator[Callable[[str, Sequence[str]], DictConfig]]:
    """Hydra on conf/, as `compose(primary, overrides)`."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"), _in_one_line():
        yield lambda primary, overrides: hydra.compose(primary, list(overrides))


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Turn what Hydra and OmegaConf raise into a `UserError` that names the right spelling."""
    try:
        yield
    except MissingConfigException as error:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        known = error.options or ()
        raise UserError(f"{group or 'configuration'}: unknown option '{option}'{hint(option, known)}") from None
    except OverrideParseException as error:
        raise UserError(f"'{error.override}': not of the form key=value, or not quoted, as in 'arms=[ar,domino]'") from None
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_explain(str(error))) from None


def _explain(message: str) -> str:
    """A message of Hydra or OmegaConf in one line; of an unknown key, with the nearest one."""
    if unknown := re.match(r"Could not override '([^']+)'", message):
        known, parent = _known_keys(), unknown[1].rpartition(".")[0]
        siblings = [key for key in known if key.rpartition(".")[0] == parent]
        near = hint(unknown[1], siblings if parent in known else known)
        return f"unknown key '{unknown[1]}'{near} (conf/ holds them all)"
    if several := re.match(r"Ambiguous value for argument '([^']+)'", message):
        return f"'{several[1]}': sweep over several values with -m, or write a list in brackets, '[a,b]'"
    if missing := re.search(r"issing mandatory value: ([\w.]+)", message):
        return f"{missing[1]} has no value; give it, as in {missing[1]}=..."
    return " ".join(message.split())


def _known_keys() -> list[str]:
    """Every group and every key of run.yaml and of the groups' options, dotted."""
    keys = dict.fromkeys(key for key in OmegaConf.load(CONF / "run.yaml") if key not in ("defaults", "hydra"))
    for path in CONF.glob("*/*.yaml"):
        group = path.parent.name
        keys[group] = None
        prefix = "" if group == "study" else f"{group}."
        keys |= dict.fromkeys(_dotted(OmegaConf.to_container(OmegaConf.load(path)), prefix))
    return list(keys)


def _dotted(values: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in values.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
