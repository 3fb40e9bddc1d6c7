"""Servers that come up, and those that do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dominotree.config import ServedArm
from dominotree.errors import UserError
from dominotree.serving.http import KEY
from dominotree.serving.processes import guarded
from dominotree.serving.server import check_launch, command_line, running
from tests.serving.fake import MODEL, Fake, serve
from tests.serving.runs import server_config

AR, TREE, EAGLE = ServedArm("ar", "ar", None), ServedArm("dominotree@32", "dominotree", 32), ServedArm("eagle3", "eagle3", None)
UP = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.serving import fake
from http.server import ThreadingHTTPServer
print("up", flush=True)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), fake._handler(fake.Fake())).serve_forever()
"""


def launch(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code), "{port}"]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> None:
    """Assert that a process ends: a signal takes its time."""
    end = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_flags_are_filled_in():
    server = server_config(launch=["serve", "--port", "{port}", '{"a": {"b": 1}}'])
    assert command_line(server, TREE, 77) == ["serve", "--port", "77", '{"a": {"b": 1}}', "--slots", "33"]
    with pytest.raises(UserError, match=r"server\.methods\.eagle3\.draft has no value"):
        command_line(server, EAGLE, 77)


def test_a_server_is_started_waited_for_warmed_up_and_stopped(tmp_path):
    with running(server_config(launch=launch(UP)), AR, tmp_path / "log") as ready:
        assert MODEL in ready.fetch("/v1/models")
        ready.check()
    assert (tmp_path / "log").read_text() == "up\n"
    with pytest.raises(OSError):
        ready.fetch("/v1/models")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"launch": launch("raise SystemExit('no GPU to be found')")}, "ended with status 1: no GPU to be found"),
        ({"launch": launch("import time; time.sleep(60)"), "ready_s": 0.5}, r"no models at .* after 0\.5 s \(server\.ready_s\)"),
        ({"launch": launch(UP), "model": "fake/modle"}, "has no model 'fake/modle'; did you mean fake/model"),
        ({"launch": launch(UP.replace("fake.Fake()", "fake.Fake(fault='500')"))}, "refuses a request: 500 .*out of memory"),
        ({"launch": ["no-such-server"]}, "no program 'no-such-server' on this machine"),
        ({"url": "http://127.0.0.1:9"}, "server.url: no models at http://127.0.0.1:9/v1/models: .*refused"),
    ],
)
def test_a_server_that_does_not_come_up_is_said_in_one_line(tmp_path, changes, message):
    with pytest.raises(UserError, match=message), running(server_config(**changes), AR, tmp_path / "log"):
        pass


def test_one_that_runs_already_is_neither_started_nor_stopped(tmp_path):
    with serve(Fake()) as fake:
        with running(server_config(url=f"{fake.url}/v1", launch=["no-such-server"]), AR, tmp_path / "log") as ready:
            assert ready.url == fake.url
        assert MODEL in ready.fetch("/v1/models")


def test_a_server_that_asks_for_a_key_gets_the_environments(tmp_path, monkeypatch):
    with serve(Fake(key="sk-right")) as fake:
        monkeypatch.setenv(KEY, "sk-right")
        with running(server_config(url=fake.url), AR, tmp_path / "log"):
            pass
        monkeypatch.setenv(KEY, "sk-wrong")
        with (
            pytest.raises(UserError, match=r"401 Unauthorized: .*wrong key: Bearer \*\*\*"),
            running(server_config(url=fake.url), AR, tmp_path / "log"),
        ):
            pass


def test_a_missing_plugin_is_said_before_anything_starts():
    methods = {"dominotree": {"plugin": "sglang.srt.plugins:dominotree"}}
    with pytest.raises(UserError, match=r"dominotree@32 needs a plugin .* entry point 'dominotree' of 'sglang\.srt\.plugins'"):
        check_launch(server_config(launch=[sys.executable], methods=methods), TREE)
    check_launch(server_config(launch=[sys.executable], methods={"dominotree": {"plugin": "pytest11:xdist"}}), TREE)


def test_a_server_that_dies_later_is_noticed(tmp_path):
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    before = children.read_text().split()  # of other tests
    with running(server_config(launch=launch(UP)), AR, tmp_path / "log") as ready:
        (child,) = set(children.read_text().split()) - set(before)
        os.killpg(int(child), signal.SIGKILL)
        time.sleep(0.2)
        with pytest.raises(UserError, match="the server of ar ended with status -9: up"):
            ready.check()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_started_ends_with_the_client_however_that_ends(tmp_path, ending):
    grandchild = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    code = f"""
        import time; from pathlib import Path
        from dominotree.serving.processes import guarded
        with guarded([{sys.executable!r}, "-c", {grandchild!r}], Path({str(tmp_path / "log")!r}), {{}}):
            time.sleep(60)
    """
    client = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    end = time.monotonic() + 20
    while not (tmp_path / "log").is_file() or not (tmp_path / "log").read_text().strip():
        assert time.monotonic() < end
        time.sleep(0.05)
    started = int((tmp_path / "log").read_text())
    assert alive(started)
    client.send_signal(ending)
    client.wait(20)
    gone(started)


WORKER = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(60)"


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(60)"])
def test_deaf_workers_end_with_the_server_whether_it_fails_or_is_stopped(tmp_path, end):
    leader = f"""
        import os, signal, subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", {WORKER!r}])
        time.sleep(1)
        {end}
    """
    with guarded([sys.executable, "-c", textwrap.dedent(leader)], tmp_path / "log", {}) as process:
        limit = time.monotonic() + 20
        while not (tmp_path / "log").read_text().strip() or not ("sleep(60)" in end or process.ended()):
            assert time.monotonic() < limit
            time.sleep(0.05)
        assert (process.ended() or "").partition(":")[0] == {
            "raise SystemExit(3)": "ended with status 3",
            "os.kill(os.getpid(), signal.SIGKILL)": "ended with status 137",
            "time.sleep(60)": "",
        }[end]
    worker = int((tmp_path / "log").read_text())
    gone(worker)


def test_one_that_does_not_heed_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("dominotree.serving.processes.STOP_S", 0.3)
    deaf = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(60)"
    )
    with guarded([sys.executable, "-c", deaf], tmp_path / "log", {}):
        while not (tmp_path / "log").read_text().strip():
            time.sleep(0.05)
    gone(int((tmp_path / "log").read_text()))
