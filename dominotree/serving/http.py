"""The few requests that are made to a server besides the load: is it there, what has it loaded, what does it tell."""

from __future__ import annotations

import json
import os
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

KEY = "DOMINOTREE_API_KEY"
"""The environment's variable with the key of a server that asks for one. It goes to the server and nowhere else."""

# A server is on this machine or beside it: the environment's proxies are for what is farther.
_OPENER = build_opener(ProxyHandler({}))


class Refused(Exception):
    """The server answered with an error; the text says which."""


def unkeyed(words: str) -> str:
    """What a server said, in one line, without the key, should it have quoted that."""
    key = os.environ.get(KEY)
    return " ".join((words.replace(key, "***") if key else words).split())


def fetch(url: str, body: dict[str, Any] | None = None, timeout: float = 5.0) -> str:
    """What is at `url`, or what it answers to `body`. Raises `Refused`, or `OSError` where there is no whole answer."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})
    if key := os.environ.get(KEY):
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            return answer.read().decode(errors="replace")
    except HTTPError as error:
        words = unkeyed(error.read().decode(errors="replace"))
        raise Refused(f"{error.code} {error.reason}: {words[:300]}") from None
    except HTTPException as error:
        raise OSError(str(error)) from None
