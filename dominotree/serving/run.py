"""The runs of a grid on a server: for each arm one server, which all datasets and temperatures meet, one after the other."""

from __future__ import annotations

import hashlib
import importlib.util
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from dominotree.config import ServedArm, ServedRun
from dominotree.errors import UserError
from dominotree.journal import Journal, measured_by
from dominotree.paths import record_file
from dominotree.progress import Progress, report
from dominotree.prompts import Conversation, load_dataset
from dominotree.provenance import git_commit, versions
from dominotree.records import SERVED_RUN, validate, write_records
from dominotree.serving.acceptance import ADAPTERS
from dominotree.serving.load import Answer, drive
from dominotree.serving.server import Running, check_launch, command_line, running


def measure_grid(runs: Sequence[ServedRun]) -> None:
    """Measure what is not measured yet of `runs`, which have their arms and their server in common, and write all records.

    Raises `UserError` before any server is started if something is missing that an arm needs.
    """
    if importlib.util.find_spec("guidellm") is None:
        raise UserError("guidellm is not installed, which puts the load on servers: pip install -e '.[serving]'")
    first = runs[0]
    if first.server.url and len(first.arms) > 1:
        labels = ", ".join(arm.label for arm in first.arms)
        raise UserError(f"server.url is one server, and grid {first.grid} has several arms: {labels}; name one of them alone")
    for arm in first.arms:
        check_launch(first.server, arm)
        _check_revisions(first, arm)
    prompts = {run.point: _prompts(run) for run in runs}
    origin = {"git_commit": git_commit(), "hardware": _hardware(first), "versions": _versions()}
    with _ended_in_order():
        for arm in first.arms:
            _measure_arm(runs, arm, prompts, origin)


def _check_revisions(run: ServedRun, arm: ServedArm) -> None:
    """Raise `UserError` if the server of an arm is not told a commit that the configuration asks for."""
    if run.server.url:
        return
    model, draft = run.model, run.server.methods[arm.method].draft
    wanted = {
        f"drafter_revisions.{name}": model.drafter_revisions.get(name) for name, at in model.drafters.items() if at == draft
    }
    for key, revision in {"revision": model.revision, **wanted}.items():
        if revision not in (None, "main", *command_line(run.server, arm, 0)):
            raise UserError(f"model.{key}: the server of {arm.label} is not told '{revision}'; say it in the server's flags, too")


def _measure_arm(
    runs: Sequence[ServedRun], arm: ServedArm, prompts: Mapping[str, list[Conversation]], origin: Mapping[str, Any]
) -> None:
    server = runs[0].server
    log = runs[0].folder / "logs" / f"server-{runs[0].grid}-{arm.label}.log"
    with ExitStack() as stack:
        ready = None
        for run in runs:
            path = journal_path(run, arm)
            with Journal.open(path, run.digest, [arm.label], origin) as journal:
                left = [prompt for prompt in prompts[run.point] if prompt.id not in journal.done]
                told: dict[str, Any] = dict.fromkeys(("server_tau", "server_version"))
                if left:
                    journal.expect(origin)
                    ready = ready or stack.enter_context(running(server, arm, log))
                    told = _session(ready, run, arm, left, journal)
                records = validate(pd.DataFrame(journal.records()), str(path))
            _write(run, arm, records, path, told)


def _session(ready: Running, run: ServedRun, arm: ServedArm, left: Sequence[Conversation], journal: Journal) -> dict[str, Any]:
    """Put what is left to the server, journalling each conversation as it ends; returns what it says of itself and of all."""
    adapter = ADAPTERS[run.server.kind]
    families = {prompt.id: prompt.family for prompt in left}
    before = adapter.begin(ready.fetch)
    progress = Progress(f"{run.label} {arm.label}", len(left) + len(journal.done), len(journal.done))
    log = journal.path.with_suffix(".load.log")
    for answers in drive(ready, run, left, log):
        conversation = answers[0].conversation
        journal.append(conversation, [record(run, arm, families[conversation], answer) for answer in answers])
        progress.advance()
    progress.close()
    log.unlink(missing_ok=True)
    return {"server_tau": adapter.tau(ready.fetch, before), "server_version": adapter.version(ready.fetch)}


def record(run: ServedRun, arm: ServedArm, family: str, answer: Answer) -> dict[str, Any]:
    """The record of one answer; what the server did not say is missing."""
    if not answer.num_output:
        raise UserError(f"{run.label}, {answer.conversation}: the server did not say how many tokens it gave (usage)")
    output = answer.num_output - 1  # without the token that prefill gave
    acceptance = ADAPTERS[run.server.kind].of_answer(answer.kept)
    if acceptance and acceptance.rounds > output:
        acceptance = None  # a round commits a token at least: what the server counts is something else
    prefill_s = None if answer.first is None else answer.first - answer.started
    # What comes in one piece, as a short answer of a speculative method may, says nothing of the time of its further tokens.
    pieces = answer.first is not None and (answer.last > answer.first or not output)
    decode_s = answer.last - answer.first if pieces else None
    draft = run.server.methods[arm.method].draft
    return {
        "study": run.study_name,
        "run": SERVED_RUN + run.digest,
        "model": run.model.name,
        "drafter": draft or "",
        "arm": arm.label,
        "method": arm.method,
        "budget": arm.budget,
        "dataset": run.dataset.name,
        "family": family,
        "temperature": run.temperature,
        "conversation": answer.conversation,
        "turn": answer.turn,
        "prompt_sha": None,
        "concurrency": run.concurrency,
        "seed": run.seed,
        "num_input": answer.num_input,
        "num_output": output,
        "stop_reason": "length" if answer.num_output >= run.max_new_tokens else "eos",
        "prefill_s": prefill_s,
        "decode_s": decode_s,
        "share_s": answer.share_s,
        "tps": output / decode_s if output and decode_s else None,
        "rounds": acceptance.rounds if acceptance else None,
        "tau": output / acceptance.rounds if acceptance and output else None,
        "accept_hist": acceptance.histogram if acceptance else None,
        **dict.fromkeys(("draft_ms", "build_ms", "verify_ms", "commit_ms", "tree_nodes", "forecast")),
        **{name: [] for name in ("nodes_by_bin", "forecast_by_bin", "accepted_by_bin")},
        "output_sha": hashlib.sha256(answer.text.encode()).hexdigest(),
        "output_ids": None,
        "divergence": None,
        "margin": None,
    }


def journal_path(run: ServedRun, arm: ServedArm) -> Path:
    """An arm has a journal of its own, so that a server is started once for all runs of a grid."""
    return run.folder / "journals" / f"{run.point.replace(' ', '-')}-{arm.label}-{run.digest}.jsonl"


def _write(run: ServedRun, arm: ServedArm, records: pd.DataFrame, journal: Path, told: Mapping[str, Any]) -> None:
    path = run.records / record_file(run.dataset.name, run.temperature, arm.label)
    about = {"config": asdict(run), "digest": run.digest, **told, **measured_by(journal)}
    write_records(records, path, about)
    stem = journal.name.removesuffix(f"{run.digest}.jsonl")
    for superseded in set(journal.parent.glob(f"{stem}{'?' * len(run.digest)}.jsonl")) - {journal}:
        superseded.unlink()  # of the same arm under an earlier configuration or earlier sources
    served = records[records.num_output > 0]
    speed = (served.num_output + 1).sum() / served.share_s.sum()
    report(f"{run.label} {arm.label}: {speed:.1f} tok/s at {run.concurrency}, {len(records)} answers, {path}")


def _prompts(run: ServedRun) -> list[Conversation]:
    path = Path(run.dataset.path).expanduser() if run.dataset.path else None
    return load_dataset(run.dataset.name, run.dataset.num_prompts, path, hub=run.dataset.hub)


def _hardware(run: ServedRun) -> dict[str, Any]:
    """The machine of the server, in words, or this one."""
    if run.server.machine:
        return {"machine": run.server.machine}
    if run.server.url:
        raise UserError("server.url: say in server.machine what machine that is; it stands under every table")
    # These need torch, so only once the configuration is known to be right.
    import torch

    from dominotree.hardware import describe_hardware

    return dict(describe_hardware(torch.device("cuda" if torch.cuda.is_available() else "cpu")))


def _versions() -> dict[str, str]:
    return versions() | {"guidellm": version("guidellm")}


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let a SIGTERM end this process as an interrupt does, so that servers are stopped before it is gone."""

    def stop(signum: int, frame: object) -> None:
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
