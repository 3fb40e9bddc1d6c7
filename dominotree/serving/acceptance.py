"""What servers say of their drafts: of one answer, and of all answers since some moment. What one does not say is missing.

SGLang puts `meta_info` into an answer that is not streamed, where the request asks for it (`return_meta_info`), and its mean
since the last flush of its cache at `/server_info`. vLLM puts `metrics.speculative_decoding` into any answer when it was started
with `--per-request-spec-decode-metrics summary`, and counters at `/metrics`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dominotree.serving.http import Refused

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
    round of all its answers together.
    """

    of_answer: Callable[[Mapping[str, Any]], Acceptance | None]
    begin: Callable[[Fetch], Any]
    tau: Callable[[Fetch, Any], float | None]


def _sglang_answer(kept: Mapping[str, Any]) -> Acceptance | None:
    rounds = kept.get("meta_info", {}).get("spec_verify_ct")
    return Acceptance(rounds) if rounds else None


def _sglang_begin(fetch: Fetch) -> None:
    with suppress(Refused, OSError):
        fetch("/flush_cache", {})


def _sglang_tau(fetch: Fetch, _: None) -> float | None:
    for path in ("/server_info", "/get_server_info"):
        with suppress(Refused, OSError, ValueError):
            states = json.loads(fetch(path)).get("internal_states") or [{}]
            return states[0].get("avg_spec_accept_length")
    return None


def _vllm_answer(kept: Mapping[str, Any]) -> Acceptance | None:
    said = kept.get("speculative_decoding")
    if not said or not said.get("num_spec_steps"):
        return None
    accepted = said.get("acceptance_histogram")
    # Index j counts rounds that accepted j drafts, each of which committed the target's own token too.
    return Acceptance(said["num_spec_steps"], [0, *accepted] if accepted else None)


def _vllm_counters(fetch: Fetch) -> tuple[float, float] | None:
    """Drafts made and tokens of them accepted, since the server began."""
    with suppress(Refused, OSError):
        text = fetch("/metrics")
        names = ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total")
        found = [re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE) for name in names]
        if all(found):
            drafts, accepted = (sum(map(float, values)) for values in found)
            return drafts, accepted
    return None


def _vllm_tau(fetch: Fetch, before: tuple[float, float] | None) -> float | None:
    after = _vllm_counters(fetch)
    if before is None or after is None or after[0] == before[0]:
        return None
    return 1 + (after[1] - before[1]) / (after[0] - before[0])


ADAPTERS = {
    "sglang": Adapter(_sglang_answer, _sglang_begin, _sglang_tau),
    "vllm": Adapter(_vllm_answer, _vllm_counters, _vllm_tau),
    "other": Adapter(lambda kept: None, lambda fetch: None, lambda fetch, before: None),
}
"""By `server.kind`."""
