"""A closed loop of requests: as soon as one is answered the next is sent, so that as many as wanted are always in flight."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dominotree.config import ServedRun
from dominotree.errors import UserError
from dominotree.prompts import Conversation
from dominotree.serving.processes import guarded
from dominotree.serving.server import Running, request_body

POLL_S = 0.05
RECORDER = [sys.executable, "-c", "from dominotree.serving.recorder import main; main()"]
ENVIRONMENT = {"GUIDELLM__MAX_WORKER_PROCESSES": "1", "NO_PROXY": "*"}
"""One process is enough for some dozens of streams, and leaves the machine to a server on it."""


@dataclass(frozen=True)
class Answer:
    """One turn, by the client's clock, in seconds: of an answer that was not streamed, `first` and `last` are None.

    share_s: of the wall time, each moment of which is divided equally among the requests in flight. kept: what the server told.
    """

    conversation: str
    turn: int
    text: str
    num_input: int | None
    num_output: int | None
    started: float
    first: float | None
    last: float | None
    ended: float
    share_s: float
    kept: Mapping[str, Any]


def drive(server: Running, run: ServedRun, prompts: Sequence[Conversation], log: Path) -> Iterator[list[Answer]]:
    """Put every conversation to the server, `run.concurrency` at a time, and yield the answers of each as it ends.

    Raises `UserError` at the first request that fails, and if the server or the load's own process ends early, or is silent for
    longer than `server.request_s`.
    """
    names = {prompt.turns[0]: prompt for prompt in prompts}
    if len(names) < len(prompts):
        raise UserError(f"{run.label}: two conversations open with the same words; leave one of them out")
    with tempfile.TemporaryDirectory() as folder:
        scenario, notes = Path(folder, "scenario.json"), Path(folder, "notes.jsonl")
        scenario.write_text(json.dumps(_scenario(server.url, run, prompts, notes)))
        notes.touch()
        with guarded([*RECORDER, str(scenario)], log, ENVIRONMENT) as process:
            open_turns = {prompt.id: len(prompt.turns) for prompt in prompts}
            flights, answers, heard = Flights(), defaultdict(list), time.monotonic()
            with notes.open(encoding="utf-8") as lines:
                while open_turns:
                    if not (line := lines.readline()):
                        server.check()
                        if how := process.ended():
                            raise UserError(f"{run.label}: the load {how}")
                        if time.monotonic() - heard > run.server.request_s:
                            raise UserError(f"{run.label}: no answer for {run.server.request_s:g} s (server.request_s)")
                        time.sleep(POLL_S)
                        continue
                    heard, note = time.monotonic(), json.loads(line)
                    place = (names[note["opening"]].id, note["turn"])
                    match note["event"]:
                        case "error":
                            server.check()
                            raise UserError(f"{run.label}, {place[0]}: the request failed: {note['error']}; all before is kept")
                        case "start":
                            flights.start(place, note["at"])
                        case "end":
                            answers[place[0]].append(_answer(place, note, flights.end(place, note["started"], note["ended"])))
                            if len(answers[place[0]]) == open_turns[place[0]]:
                                del open_turns[place[0]]
                                yield answers.pop(place[0])


def _scenario(url: str, run: ServedRun, prompts: Sequence[Conversation], notes: Path) -> dict[str, Any]:
    """What GuideLLM is told."""
    body = request_body(run.server) | {"temperature": run.temperature, "seed": run.seed, "max_tokens": run.max_new_tokens}
    backend = {
        "kind": "recorded_http",
        "notes": str(notes),
        "target": url,
        "model": run.server.model,
        "stream": run.server.stream,
        "timeout": run.server.request_s,
        "http2": False,
        "validate_backend": False,
        "extras": {"body": body},
    }
    data = [{f"prompt_{turn}": text for turn, text in enumerate(prompt.turns)} for prompt in prompts]
    return {
        "spec": {
            "backend": backend,
            "profile": {"kind": "concurrent", "streams": [run.concurrency]},
            "data": [{"kind": "in_memory_dict_list", "data": data}],
            "outputs": [],
        }
    }


def _answer(place: tuple[str, int], note: Mapping[str, Any], share_s: float) -> Answer:
    conversation, turn = place
    times = {name: note[name] for name in ("started", "first", "last", "ended")}
    tokens = {"num_input": note["input_tokens"], "num_output": note["output_tokens"]}
    return Answer(conversation, turn, note["text"], **tokens, **times, share_s=share_s, kept=note["metrics"] or {})


class Flights:
    """Which requests were in flight when."""

    def __init__(self) -> None:
        self._open: dict[Any, float] = {}
        self._closed: list[tuple[float, float]] = []

    def start(self, name: Any, at: float) -> None:
        self._open[name] = at

    def end(self, name: Any, started: float, ended: float) -> float:
        """Close a request and return its share of the wall time: at every moment 1 / the requests in flight."""
        del self._open[name]
        self._closed.append((started, ended))
        others = [*self._closed, *((at, ended) for at in self._open.values())]
        spans = np.array([(max(a, started), min(b, ended)) for a, b in others if a < ended and b > started])
        edges = np.unique(spans)
        middles = (edges[:-1] + edges[1:]) / 2
        flying = ((spans[:, :1] < middles) & (middles < spans[:, 1:])).sum(axis=0)
        return float((np.diff(edges) / flying).sum())
