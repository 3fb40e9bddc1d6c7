"""A run on a server, of a study with no file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dominotree.config import DatasetConfig, ModelConfig, ServedArm, ServedRun, ServerConfig, TrackingConfig, parse
from tests.serving.fake import MODEL

SERVER = {
    "kind": "vllm",
    "url": None,
    "launch": [],
    "model": MODEL,
    "methods": {"ar": {}, "dominotree": {"flags": ["--slots", "{slots}"]}, "eagle3": {"flags": ["--draft", "{draft}"]}},
    "stream": True,
    "body": {"stream_options": None},
    "ready_s": 20.0,
    "request_s": 20.0,
    "machine": "a machine for tests",
}


def server_config(**changes: Any) -> ServerConfig:
    return parse(ServerConfig, SERVER | changes)


def served_run(results: Path, concurrency: int = 1, arms: tuple[str, ...] = ("ar",), **changes: Any) -> ServedRun:
    """On the embedded chats, three of them; `changes` are of the server."""
    labels = [label.partition("@") for label in arms]
    return ServedRun(
        study="tried",
        variant=None,
        grid="served",
        grids=None,
        model=ModelConfig("fake", MODEL, {}, None, {}, "float32"),
        dataset=DatasetConfig("chat", None, 3),
        temperature=0.0,
        concurrency=concurrency,
        seed=0,
        max_new_tokens=8,
        results=str(results),
        tracking=TrackingConfig(mode="disabled"),
        server=server_config(**changes),
        arms=tuple(ServedArm("".join(parts), parts[0], int(parts[2]) if parts[2] else None) for parts in labels),
    )
