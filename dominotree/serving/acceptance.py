"""What servers say of their drafts: of one answer, and of all answers since some moment. What one does not say is missing.

SGLang puts `meta_info` into an answer that is not streamed, where the request asks for it (`return_meta_info`), and its mean
since the last flush of its cache at `/server_info`. vLLM puts `metrics.speculative_decoding` into any answer when it was started
with `--per-request-spec-decode-metrics summary`, and counters at `/metrics`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dominotree.serving.http import Refused

FLUSH_S = 5.0

Fetch = Callable[..., str]
"""(path, body or None) -> what the server says there."""


@dataclass(frozen=True)
class Acceptance:
    """rounds: of one answer. histogram: how many of them committed i tokens, None where only their number is known."""

    rounds: int
    histogram: list[int] | None = None


@dataclass(frozen=True)
class Adapter:
    """How one kind of server tells.

    of_answer: from what the recorder kept of an answer. begin: before a session, what `tau` then needs. tau: after it, tokens a
    round of all its answers together. version: the server's own.
    """

    of_answer: Callable[[Mapping[str, Any]], Acceptance | None]
    begin: Callable[[Fetch], Any]
    tau: Callable[[Fetch, Any], float | None]
    version: Callable[[Fetch], str | None]


def _acceptance(rounds: int | None, accepted: list[int] | None) -> Acceptance | None:
    """accepted: j in it counts rounds that accepted j drafts, each of which committed the target's own token too."""
    if not rounds:
        return None
    whole = accepted and sum(accepted) == rounds
    return Acceptance(rounds, [0, *accepted] if whole else None)


def _sglang_answer(kept: Mapping[str, Any]) -> Acceptance | None:
    said = kept.get("meta_info", {})
    return _acceptance(said.get("spec_verify_ct"), said.get("spec_correct_drafts_histogram"))


def _sglang_begin(fetch: Fetch) -> bool:
    """Whether the cache is flushed: SGLang refuses that until the requests before are off its books."""
    end = time.monotonic() + FLUSH_S
    with suppress(OSError):
        while True:
            try:
                fetch("/flush_cache", {})
                return True
            except Refused:
                if time.monotonic() > end:
                    break
                time.sleep(FLUSH_S / 20)
    return False


def _sglang_tau(fetch: Fetch, flushed: bool) -> float | None:
    for path in ("/server_info", "/get_server_info") if flushed else ():
        with suppress(Refused, OSError, ValueError, LookupError, TypeError):
            return float(json.loads(fetch(path))["internal_states"][0]["avg_spec_accept_length"])
    return None


def _vllm_answer(kept: Mapping[str, Any]) -> Acceptance | None:
    said = kept.get("speculative_decoding") or {}
    return _acceptance(said.get("num_spec_steps"), said.get("acceptance_histogram"))


def _vllm_counters(fetch: Fetch) -> tuple[float, float] | None:
    """Drafts made and tokens of them accepted, since the server began."""
    with suppress(Refused, OSError, ValueError):
        text = fetch("/metrics")
        names = ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total")
        found = [re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE) for name in names]
        if all(found):
            drafts, accepted = (sum(map(float, values)) for values in found)
            return drafts, accepted
    return None


def _vllm_tau(fetch: Fetch, before: tuple[float, float] | None) -> float | None:
    after = _vllm_counters(fetch)
    if before is None or after is None or after[0] <= before[0]:
        return None
    return 1 + (after[1] - before[1]) / (after[0] - before[0])


def _version_at(*paths: str) -> Callable[[Fetch], str | None]:
    """The `version` of the first of `paths` that has one."""

    def version(fetch: Fetch) -> str | None:
        for path in paths:
            with suppress(Refused, OSError, ValueError, LookupError, TypeError):
                return str(json.loads(fetch(path))["version"])
        return None

    return version


ADAPTERS = {
    "sglang": Adapter(_sglang_answer, _sglang_begin, _sglang_tau, _version_at("/server_info", "/get_server_info")),
    "vllm": Adapter(_vllm_answer, _vllm_counters, _vllm_tau, _version_at("/version")),
    "other": Adapter(lambda kept: None, lambda fetch: None, lambda fetch, before: None, lambda fetch: None),
}
"""By `server.kind`."""
