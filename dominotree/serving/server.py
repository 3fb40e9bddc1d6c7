"""A server of one arm: started, waited for, warmed up, stopped."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dominotree.config import ServedArm, ServerConfig
from dominotree.errors import UserError
from dominotree.progress import report
from dominotree.serving.http import KEY, Refused, fetch
from dominotree.serving.processes import guarded
from dominotree.spelling import hint

POLL_S = 0.25
WARM_UP = "Explain in two or three sentences why the sky is blue, and why it is red in the evening."
WARM_UP_TOKENS = 12

GIVE_KEY = f"a server that asks for a key gets what the environment has as {KEY}"

FIND_PLUGIN = (
    "import sys; from importlib.metadata import entry_points; sys.exit(sys.argv[2] not in entry_points(group=sys.argv[1]).names)"
)


@dataclass(frozen=True)
class Running:
    """url: without a path. check: raises `UserError` if the server has ended meanwhile."""

    url: str
    check: Callable[[], None]

    def fetch(self, path: str, body: dict[str, Any] | None = None, timeout: float = 30.0) -> str:
        return fetch(self.url + path, body, timeout)


def command_line(server: ServerConfig, arm: ServedArm, port: int) -> list[str]:
    """How the server of an arm is started. Raises `UserError` if its flags need a draft and there is none."""
    method = server.methods[arm.method]
    if method.draft is None and any("{draft}" in flag for flag in method.flags):
        raise UserError(f"server.methods.{arm.method}.draft has no value, and its flags need it; give a folder or a Hub name")
    slots = None if arm.budget is None else arm.budget + 1  # the root is verified too
    values = {"port": port, "draft": method.draft, "budget": arm.budget, "slots": slots}

    def filled(word: str) -> str:
        for name, value in values.items():  # not str.format: flags may hold JSON
            word = word.replace(f"{{{name}}}", str(value))
        return word

    return [filled(word) for word in (*server.launch, *method.flags)]


def check_launch(server: ServerConfig, arm: ServedArm) -> None:
    """Raise `UserError` if what starts the server of an arm, or a plugin that it needs, is not installed, or if records would
    hold a secret.
    """
    if server.url:
        if "@" in urlsplit(server.url).netloc:
            raise UserError(f"server.url has a name or a password in it, which every record would hold; {GIVE_KEY}")
        return
    program, *words = command_line(server, arm, 0)
    if any(word.partition("=")[0] == "--api-key" for word in words):
        raise UserError(f"server.launch: --api-key would be in every record; leave it out. {GIVE_KEY}")
    if not shutil.which(program):
        raise UserError(f"server.launch: no program '{program}' on this machine; install the server, or give server.url")
    if plugin := server.methods[arm.method].plugin:
        group, _, name = plugin.partition(":")
        python = shutil.which("python", path=str(Path(shutil.which(program)).parent)) or program
        if subprocess.run([python, "-c", FIND_PLUGIN, group, name], capture_output=True).returncode:
            raise UserError(
                f"{arm.label} needs a plugin that is not installed beside {program}: entry point '{name}' of '{group}'; "
                "docs/serving.md says what it must provide"
            )


@contextmanager
def running(server: ServerConfig, arm: ServedArm, log: Path) -> Iterator[Running]:
    """The server of an arm, ready and warm, until the block ends: the one at `server.url`, or one of its own.

    Raises `UserError` if it does not come up, ends, has not the model, or refuses a request.
    """
    if server.url:
        ready = Running(server.url.rstrip("/").removesuffix("/v1"), lambda: None)
        _wait(ready, server, "server.url: ")
        yield ready
        return
    check_launch(server, arm)
    port = _free_port()
    command = command_line(server, arm, port)
    report(f"{arm.label}: starting {' '.join(command)}")
    with guarded(command, log, server.methods[arm.method].environment) as process:

        def check() -> None:
            if how := process.ended():
                raise UserError(f"the server of {arm.label} {how}")

        ready = Running(f"http://127.0.0.1:{port}", check)
        _wait(ready, server, f"the server of {arm.label} ({log}): ")
        yield ready


def _free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def _wait(ready: Running, server: ServerConfig, who: str) -> None:
    """Until the server says that it has the model and has answered one request."""
    end = time.monotonic() + server.ready_s
    while True:
        ready.check()
        try:
            models = [model["id"] for model in json.loads(ready.fetch("/v1/models"))["data"]]
            break
        except Refused as error:
            reason = str(error)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error)
        if server.url or time.monotonic() > end:
            waited = "" if server.url else f" after {server.ready_s:g} s (server.ready_s)"
            raise UserError(f"{who}no models at {ready.url}/v1/models{waited}: {reason}")
        time.sleep(POLL_S)
    if server.model not in models:
        raise UserError(f"{who}has no model '{server.model}'{hint(server.model, models)}; set server.model")
    body = {key: value for key, value in request_body(server).items() if value is not None}
    body |= {"model": server.model, "max_tokens": WARM_UP_TOKENS, "temperature": 0}
    try:
        ready.fetch("/v1/chat/completions", body | {"messages": [{"role": "user", "content": WARM_UP}]}, server.request_s)
    except (Refused, OSError) as error:
        ready.check()
        raise UserError(f"{who}refuses a request: {error}") from None


def request_body(server: ServerConfig) -> dict[str, Any]:
    """What every request says, whatever its prompt: thinking off, and what the server's kind needs."""
    told = {"return_meta_info": True} if server.kind == "sglang" and not server.stream else {}
    return {"chat_template_kwargs": {"enable_thinking": False}} | told | server.body
