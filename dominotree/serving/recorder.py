"""The process that puts load on a server: GuideLLM, noting every request as it starts and as it ends.

GuideLLM reports when all is over, leaves out what SGLang says of a request's drafts, and (0.8.1) waits for ever once a request
has failed. What is noted here, in lines of JSON, is there at once, whatever comes after. This is started as a function, not as a
module: the processes that GuideLLM starts would import `__main__` again, and register everything twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import httpx
from guidellm.backends.backend import Backend
from guidellm.backends.openai.http import OpenAIHTTPBackend
from guidellm.benchmark import BenchmarkArgs, BenchmarkScenario, benchmark_generative_text
from guidellm.schemas import GenerationRequest, GenerationResponse, RequestInfo
from guidellm.schemas.backends.backend import BackendArgs
from guidellm.schemas.backends.openai_http import OpenAIHTTPBackendArgs
from pydantic import Field, SecretStr

from dominotree.serving.http import KEY, unkeyed

KIND = "recorded_http"
META_INFO = "meta_info"

History = list[tuple[GenerationRequest, GenerationResponse | None]]


@BackendArgs.register(KIND)
class RecordedArgs(OpenAIHTTPBackendArgs):
    """notes: the file that the lines go to. api_key: from the environment, so that no file has it."""

    kind: Literal["recorded_http"] = Field(default=KIND)
    notes: Path
    api_key: SecretStr | None = Field(default_factory=lambda: SecretStr(os.environ[KEY]) if os.environ.get(KEY) else None)


@Backend.register(KIND)
class RecordedBackend(OpenAIHTTPBackend):
    """GuideLLM's own client, each request of which is noted."""

    async def process_startup(self) -> None:
        """Read what a server says of an error before a stream is closed over it."""

        async def read_errors(response: httpx.Response) -> None:
            if response.is_error:
                await response.aread()

        await super().process_startup()
        self._async_client.event_hooks = {"response": [read_errors]}

    async def resolve(  # type: ignore[override]
        self, request: GenerationRequest, request_info: RequestInfo, history: History | None = None
    ) -> AsyncIterator[tuple[GenerationResponse | None, RequestInfo]]:
        turn = len(history or [])
        opening = history[0][0] if history else request
        # The prompt that a conversation opens with names it: GuideLLM numbers conversations in its own way.
        place = {"opening": opening.columns["text_column"][0], "turn": turn}
        self._note({"event": "start", **place, "at": time.time()})
        final: GenerationResponse | None = None
        try:
            async for response, info in super().resolve(request, request_info, history):
                final = response or final
                yield response, info
        except Exception as error:
            self._note({"event": "error", **place, "error": _in_words(error)})
            raise
        times = request_info.timings
        self._note(
            {
                "event": "end",
                **place,
                "started": times.request_start,
                "first": times.first_token_iteration,
                "last": times.last_token_iteration,
                "ended": times.request_end,
                "input_tokens": final.input_metrics.text_tokens if final else None,
                "output_tokens": final.output_metrics.text_tokens if final else None,
                "text": (final.text if final else None) or "",
                "metrics": final.response_metrics if final else None,
            }
        )

    async def _prepare_resolve_request(self, *arguments: Any) -> Any:
        """With a handler of the response that keeps SGLang's `meta_info` beside what it keeps of other servers."""
        handler, *others = await super()._prepare_resolve_request(*arguments)
        extract = handler.extract_choices_and_usage

        def keeping(response: Mapping[str, Any]) -> tuple[Sequence[Mapping[str, Any]], Any]:
            choices, usage = extract(response)
            if choices and choices[0].get(META_INFO):
                handler.response_metrics = {META_INFO: choices[0][META_INFO]}
            return choices, usage

        handler.extract_choices_and_usage = keeping
        return handler, *others

    def _note(self, line: Mapping[str, Any]) -> None:
        # One write of a line to a file that is appended to: whole, whichever process it comes from.
        file = os.open(self._args.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, (json.dumps(line) + "\n").encode())
        finally:
            os.close(file)


def _in_words(error: Exception) -> str:
    """A failed request in one line: the server's own words, where it answered."""
    if isinstance(error, httpx.HTTPStatusError):
        answer = error.response
        return f"{answer.status_code} {answer.reason_phrase}: {unkeyed(answer.text)[:300]}"
    return unkeyed(f"{type(error).__name__}: {error}")


def main() -> None:
    """One closed loop of requests, as the scenario says that sys.argv names."""
    for schema in (BenchmarkArgs, BenchmarkScenario):
        schema.reload_schema()  # they were built before there was a backend of this kind
    asyncio.run(benchmark_generative_text(BenchmarkScenario.create(Path(sys.argv[1])), progress=False))
