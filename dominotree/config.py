"""What a run, a study and a training are told: the schemas of conf/, with their range checks. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from dominotree.arms import STRICT, Arm, Positive
from dominotree.errors import UserError
from dominotree.hub import MAIN, fetch
from dominotree.paths import ASSETS, record_file
from dominotree.prompts import DATASETS, HubSource
from dominotree.provenance import MEASURE_SOURCES, SERVE_SOURCES, digest, source_digests
from dominotree.spelling import hint

T = TypeVar("T")
Temperature = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9._-]*$")]
GridName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
Job = Literal["run", "grid"]
AD_HOC = "adhoc"


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """target: the demo's name, a folder or a Hub name. drafters: by kind, a name in assets/, a folder or a Hub name.

    revision, drafter_revisions: of those on the Hub, a branch, a tag or a commit; None for `main`.
    """

    name: str
    target: str
    drafters: dict[Literal["dflash", "domino"], str | None]
    revision: str | None
    drafter_revisions: dict[Literal["dflash", "domino"], str | None]
    dtype: Literal["float32", "bfloat16"]

    def drafter_on_hub(self, kind: str) -> str | None:
        """The Hub's name of the drafter of that kind; None if it lies on this machine, or there is none."""
        name = self.drafters.get(kind)
        return name if name and not local_drafter(name) and HUB_NAME.fullmatch(name) else None

    def drafter_path(self, kind: str) -> Path:
        """The folder of the drafter of that kind, fetched from the Hub if it is a Hub name.

        Raises `UserError` if there is none, or it cannot be fetched.
        """
        name = self.drafters.get(kind)
        if name is None:
            raise UserError(f"model.drafters.{kind} has no value, and an arm needs it; give a folder or a Hub name")
        folder = local_drafter(name)
        if folder:
            return folder
        if not self.drafter_on_hub(kind):
            raise UserError(f"model.drafters.{kind}={name}: no such folder, and nothing of this name in {ASSETS}")
        return fetch(name, self.drafter_revisions.get(kind) or MAIN, ["*.json", "*.safetensors"])


@dataclass(frozen=True, config=STRICT)
class DatasetConfig:
    """num_prompts: the first so many after shuffling, None for all. path: a file instead of the dataset's own or the Hub's."""

    name: str
    path: str | None
    num_prompts: Positive | None
    hub: HubSource | None = None

    @model_validator(mode="after")
    def _is_known(self) -> DatasetConfig:
        if self.name not in DATASETS:
            raise ValueError(f"unknown dataset '{self.name}'{hint(self.name, DATASETS)}")
        return self


@dataclass(frozen=True, config=STRICT)
class EngineConfig:
    """threads: None for all cores."""

    device: Literal["auto", "cpu", "cuda"]
    threads: Positive | None
    sampling: Literal["keyed", "multinomial"]
    gru_input_table: bool
    cuda_graphs: bool

    @property
    def num_threads(self) -> int:
        """Threads to compute with, whatever OMP_NUM_THREADS says, which Snakemake sets to a rule's own."""
        return self.threads or len(os.sched_getaffinity(0))


@dataclass(frozen=True, config=STRICT)
class CostModelConfig:
    """How verification is profiled: median of `repeats` timings after `warmups`, at tree sizes and contexts (tokens)."""

    repeats: Positive
    warmups: Positive
    sizes: Annotated[tuple[Positive, ...], Field(min_length=2)]
    contexts: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]


@dataclass(frozen=True, config=STRICT)
class TrackingConfig:
    """Where Weights & Biases logs: runs lie in `folder`/wandb."""

    mode: Literal["offline", "online", "disabled"] = "offline"
    project: str = "dominotree"
    entity: str | None = None
    folder: str = "results"


@dataclass(frozen=True, config=STRICT)
class Grid:
    """What a study spans for some of its tables: a run for each dataset and temperature, all arms in each.

    num_prompts, max_new_tokens, concurrency: of this grid's runs, where they are not the study's. stream: whether a server's
    answers come token by token, where that is not as the server has it.
    """

    datasets: Annotated[tuple[str, ...], Field(min_length=1)]
    temperatures: Annotated[tuple[Temperature, ...], Field(min_length=1)]
    arms: Annotated[tuple[str, ...], Field(min_length=1)]
    num_prompts: Positive | None = None
    max_new_tokens: Positive | None = None
    concurrency: Positive | None = None
    stream: bool | None = None

    @property
    def places(self) -> list[tuple[str, float, str]]:
        """Dataset, temperature and arm of every record file."""
        return list(product(self.datasets, self.temperatures, self.arms))


@dataclass(frozen=True, config=STRICT)
class TablesConfig:
    """beside_paper: show what the paper printed beside what was measured."""

    beside_paper: bool


@dataclass(frozen=True, config=STRICT)
class Point:
    """A point of a study, or one of its own: a model, a dataset, a temperature, `concurrency` requests at a time."""

    study: Name
    variant: Name | None
    grid: GridName | None
    grids: dict[GridName, Grid] | None
    model: ModelConfig
    dataset: DatasetConfig
    temperature: Temperature
    concurrency: Positive
    seed: Annotated[int, Field(ge=0)]
    max_new_tokens: Positive
    results: str
    tracking: TrackingConfig

    SOURCES: ClassVar[tuple[str, ...]] = ()
    """What decides its numbers."""

    @property
    def study_name(self) -> str:
        """The study with its variant: `demo`, `demo-m32`."""
        return f"{self.study}-{self.variant}" if self.variant else self.study

    @property
    def folder(self) -> Path:
        """Where the run's results go; runs outside a study are kept apart by their configuration."""
        if self.study == AD_HOC:
            return Path(self.results, self.study_name, hashlib.sha256(self._measured().encode()).hexdigest()[:8])
        return Path(self.results, self.study_name)

    @property
    def records(self) -> Path:
        """The folder of the run's record files: a study keeps its grids apart."""
        return self.folder / "records" / (self.grid or "")

    @property
    def point(self) -> str:
        """Which of the study's runs it is, `main chat t0.5`; outside a study `chat t0.5`."""
        return " ".join([*([self.grid] if self.grid else []), self.dataset.name, f"t{self.temperature:g}"])

    @property
    def label(self) -> str:
        """A name to read: `demo main chat t0.5`."""
        return f"{self.study_name} {self.point}"

    def _measured(self) -> str:
        """The configuration as JSON, without what does not change a number."""
        values = asdict(self)
        for cosmetic in ("grids", "results", "tracking"):
            del values[cosmetic]
        return json.dumps(values, sort_keys=True)

    @cached_property
    def digests(self) -> dict[str, str]:
        """Of all that decides this run's numbers, a digest after its name: configuration, sources, drafter weights."""
        configuration = hashlib.sha256(self._measured().encode()).hexdigest()[:16]
        weights = {
            f"{kind}_drafter": f"{name} {digest((folder,))}"
            for kind, name in sorted(self.model.drafters.items())
            if name and (folder := local_drafter(name))
        }
        return {"configuration": f"configuration {configuration}"} | source_digests(self.SOURCES) | weights

    @cached_property
    def digest(self) -> str:
        """Of all of them."""
        return hashlib.sha256("\0".join(self.digests.values()).encode()).hexdigest()[:16]


@dataclass(frozen=True, config=STRICT)
class RunConfig(Point):
    """One run: its arms are measured side by side."""

    engine: EngineConfig
    cost_model: CostModelConfig
    arms: tuple[Arm, ...]

    SOURCES: ClassVar[tuple[str, ...]] = MEASURE_SOURCES

    @model_validator(mode="after")
    def _costs_reach_the_caps(self) -> RunConfig:
        largest = max(self.cost_model.sizes)
        for arm in self.arms:
            if arm.settings.cap and arm.settings.cap > largest:
                raise ValueError(
                    f"{arm.label}'s cap={arm.settings.cap} exceeds the largest of cost_model.sizes, {largest}; profile it too"
                )
        return self


@dataclass(frozen=True, config=STRICT)
class ServedMethod:
    """How a server is started for one method: flags after the common launch line, in which {draft} is `draft`.

    plugin: the name of an entry point that the server must find. environment: of its process.
    """

    flags: tuple[str, ...] = ()
    draft: str | None = None
    plugin: str | None = None
    environment: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, config=STRICT)
class ServerConfig:
    """A server that speaks the OpenAI API.

    kind: by which it is known how it tells of acceptance. url: of one that runs already, which is then neither started nor
    stopped. launch: its command line, with {port}, and in a method's flags {draft}, {budget} and {slots}, the budget and the
    root. model: its name there. stream: whether answers come token by token; else there is no time to the first. body: added to
    every request. ready_s, request_s: how long to wait for the server and for a sign of life of a request. machine: in words,
    where the server is not on this one.
    """

    kind: Literal["sglang", "vllm", "other"]
    url: str | None
    launch: tuple[str, ...]
    model: str
    methods: dict[str, ServedMethod]
    stream: bool
    body: dict[str, Any]
    ready_s: Annotated[float, Field(gt=0)]
    request_s: Annotated[float, Field(gt=0)]
    machine: str | None


@dataclass(frozen=True, config=STRICT)
class ServedArm:
    """One method of a server. label: `ar`, `dominotree@32`."""

    label: str
    method: str
    budget: Positive | None


@dataclass(frozen=True, config=STRICT)
class ServedRun(Point):
    """One run on a server: each arm has a server of its own, one after the other, under the same load."""

    server: ServerConfig
    arms: tuple[ServedArm, ...]

    SOURCES: ClassVar[tuple[str, ...]] = SERVE_SOURCES


@dataclass(frozen=True, config=STRICT)
class Study:
    """Grids of runs under one name.

    name: with the variant, `demo-m32`. source: the rules (workflow/rules/<source>.smk) that make its records. job: what one
    process measures. grids: their arms are labels. runs: none where `source` is another than "measure". served: where it is
    "serve". overrides: of a variant.
    """

    name: str
    source: Name
    job: Job
    results: str
    grids: Annotated[dict[GridName, Grid], Field(min_length=1)]
    runs: tuple[RunConfig, ...]
    served: tuple[ServedRun, ...]
    overrides: tuple[str, ...]
    tables: TablesConfig
    tracking: TrackingConfig

    @property
    def folder(self) -> Path:
        """Where all results of the study go."""
        return Path(self.results, self.name)

    def grids_for(self, purpose: str) -> list[str]:
        """The grids for one purpose: `main`, and `main_8b` of another model. Raises `UserError` if there is none."""
        names = [name for name in self.grids if name.partition("_")[0] == purpose]
        if not names:
            raise UserError(f"study {self.name} has no grid '{purpose}'{hint(purpose, self.grids)}")
        return names

    def record_files(self, purpose: str) -> list[Path]:
        """All record files of the grids for one purpose, as the study now has them."""
        grids = self.grids_for(purpose)
        return [self.folder / "records" / name / record_file(*place) for name in grids for place in self.grids[name].places]

    def grid_arguments(self, grid: str) -> list[str]:
        """The arguments that make `python -m dominotree.serving` measure a grid."""
        first = self.served[0]
        variant = [f"variant={first.variant}"] if first.variant else []
        return [f"study={first.study}", *variant, f"grid={grid}", *self.overrides]

    def command_line(self, *runs: RunConfig) -> list[str]:
        """The arguments that make `python -m dominotree.run` measure `runs`: one, or all of a grid, one after the other."""
        first = runs[0]
        variant = [f"variant={first.variant}"] if first.variant else []
        datasets = dict.fromkeys(run.dataset.name for run in runs)
        temperatures = dict.fromkeys(f"{run.temperature:g}" for run in runs)
        return [
            *(["-m"] if len(runs) > 1 else []),
            f"study={first.study}",
            *variant,
            f"grid={first.grid}",
            f"dataset={','.join(datasets)}",
            f"temperature={','.join(temperatures)}",
            *self.overrides,
        ]


@dataclass(frozen=True, config=STRICT)
class DraftersConfig:
    """What `python -m dominotree.training` works on. `corpus` and `training` become that package's own schemas, which need torch.

    conversations: corpus files. output: the file or folder to write. start: folder of a drafter to begin with.
    """

    model: ModelConfig
    engine: EngineConfig
    corpus: dict[str, Any]
    training: dict[str, Any]
    tracking: TrackingConfig
    conversations: tuple[str, ...]
    features: str
    output: str | None
    start: str | None
    results: str


def local_drafter(name: str) -> Path | None:
    """The folder of a drafter that lies on this machine: a name in assets/, or a path. None if there is none."""
    folders = (ASSETS / name, Path(name).expanduser())
    return next((folder for folder in folders if folder.is_dir()), None)


def parse(kind: type[T], values: Any, where: str = "") -> T:
    """`values`, made of plain Python objects, as a dataclass; a `UserError` names the first value that does not fit."""
    try:
        return TypeAdapter(kind).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, filter(None, (where, *fault["loc"]))))
        given = "" if isinstance(fault["input"], dict | list) else f", not {json.dumps(fault['input'])}"
        message = re.sub(r"^(Value error, |\w+ (?=should))", "", fault["msg"])
        raise UserError(f"{place}: {message}{given}") from None
