"""Load on a server: what is sent, what is noted, and every way in which it can fail."""

from __future__ import annotations

import json
import sys
import textwrap
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dominotree.errors import UserError
from dominotree.prompts import Conversation, load_dataset
from dominotree.serving import load
from dominotree.serving.http import KEY
from dominotree.serving.load import Flights, drive
from dominotree.serving.server import Running
from tests.serving.fake import Fake, serve
from tests.serving.runs import served_run

needs_guidellm = pytest.mark.skipif(
    find_spec("guidellm") is None, reason="guidellm is not installed: pip install -e '.[serving]'"
)
HELLO = [Conversation("hello", "chat", ("Hello?",))]
METRICS = {"speculative_decoding": {"num_spec_steps": 2, "acceptance_histogram": [1, 1]}}


@st.composite
def flights(draw) -> list[tuple[float, float]]:
    times = st.integers(0, 40).map(lambda n: n / 4)
    return [tuple(sorted(draw(st.tuples(times, times, st.just(0)))[:2])) for _ in range(draw(st.integers(1, 8)))]


@given(flights())
def test_shares_add_up_to_the_time_in_which_anything_was_in_flight(spans):
    spans = [(start, end) for start, end in spans if start < end] or [(0.0, 1.0)]
    board = Flights()
    for name, (start, _) in enumerate(spans):
        board.start(name, start)
    # In the order of their ends, as they are noted.
    order = sorted(range(len(spans)), key=lambda name: spans[name][1])
    shares = [board.end(name, *spans[name]) for name in order]
    quarters = [n / 4 + 0.125 for n in range(40)]
    covered = sum(any(start < t < end for start, end in spans) for t in quarters) / 4
    assert sum(shares) == pytest.approx(covered)


def test_a_share_is_the_whole_of_what_a_request_had_alone_and_half_of_what_it_shared():
    board = Flights()
    board.start("a", 0.0)
    board.start("b", 2.0)
    assert board.end("a", 0.0, 3.0) == 2.5
    board.start("c", 3.0)  # not noted by the time that b ends, of which it took nothing
    assert board.end("b", 2.0, 4.0) == 1.0


@needs_guidellm
def test_conversations_are_answered_several_at_a_time_each_turn_after_the_earlier_ones(tmp_path):
    prompts = [prompt for prompt in load_dataset("chat") if len(prompt.turns) == 2][:3]
    with serve(Fake(metrics=METRICS, delay=0.02)) as fake:
        run = served_run(tmp_path, concurrency=2)
        ended = list(drive(Running(fake.url, lambda: None), run, prompts, tmp_path / "log"))
        bodies = [body for body in fake.bodies if body["messages"]]
    assert {answers[0].conversation for answers in ended} == {prompt.id for prompt in prompts}
    for answers in ended:
        assert [answer.turn for answer in answers] == [0, 1]
        for answer in answers:
            assert (answer.num_input, answer.num_output, answer.text.split()) == (7, 4, ["one", "two", "three", "four"])
            assert answer.started < answer.first < answer.last <= answer.ended
            assert answer.kept == METRICS
    first = {prompt.turns[0]: prompt for prompt in prompts}
    assert len(bodies) == 6
    for body in bodies:
        words = [part["content"] if isinstance(part["content"], str) else part["content"][0]["text"] for part in body["messages"]]
        prompt = first[words[0]]
        assert words in ([prompt.turns[0]], [prompt.turns[0], "one two three four ", prompt.turns[1]])
        assert body["model"] == "fake/model" and body["temperature"] == 0 and body["max_tokens"] == 8 and body["stream"]
        assert body["chat_template_kwargs"] == {"enable_thinking": False} and "stream_options" not in body
    spans = [(answer.started, answer.ended) for answers in ended for answer in answers]
    most = max(sum(start <= moment < end for start, end in spans) for moment, _ in spans)
    assert most == 2
    shares = sum(answer.share_s for answers in ended for answer in answers)
    assert shares <= max(end for _, end in spans) - min(start for start, _ in spans) + 1e-6


@needs_guidellm
def test_a_stream_that_breaks_off_is_said_at_once_and_what_is_answered_is_kept(tmp_path):
    prompts = load_dataset("math", 2)
    with serve(Fake(fault="truncated", delay=0.01)) as fake:
        loop = drive(Running(fake.url, lambda: None), served_run(tmp_path), prompts, tmp_path / "log")
        with pytest.raises(UserError, match=rf"{prompts[0].id}: the request failed: RemoteProtocolError.*; all before is kept"):
            next(loop)


@needs_guidellm
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("fault", "said"),
    [("500", "500 Internal Server Error: .*out of memory"), ("long", "400 Bad Request: .*context length is 40960")],
)
def test_what_a_server_says_of_an_error_is_said(tmp_path, fault, said, stream):
    with serve(Fake(fault=fault)) as fake:
        loop = drive(Running(fake.url, lambda: None), served_run(tmp_path, stream=stream), HELLO, tmp_path / "log")
        with pytest.raises(UserError, match=f"hello: the request failed: {said}"):
            next(loop)


@needs_guidellm
@pytest.mark.parametrize("key", ["sk-right", "sk-wrong"])
def test_a_key_goes_to_the_server_and_nowhere_else(tmp_path, monkeypatch, key):
    monkeypatch.setenv(KEY, key)
    with serve(Fake(key="sk-right")) as fake:
        loop = drive(Running(fake.url, lambda: None), served_run(tmp_path), HELLO, tmp_path / "log")
        if key == "sk-right":
            assert [answer.num_output for answer in next(loop)] == [4]
        else:
            with pytest.raises(UserError, match=r"401 Unauthorized: .*wrong key: Bearer \*\*\*"):
                next(loop)
        loop.close()
    assert all("sk-" not in path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())


def recorder(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Put a program in the recorder's place; `note(...)` writes a line where that does."""
    head = """
        import json, sys, time
        notes = json.load(open(sys.argv[1]))["spec"]["backend"]["notes"]
        def note(**line): print(json.dumps(line), file=open(notes, "a"), flush=True)
    """
    monkeypatch.setattr(load, "RECORDER", [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)])


START = "note(event='start', opening='Hello?', turn=0, at=0.0)\n"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (START + "print('out of files'); sys.exit(3)", "the load ended with status 3: out of files"),
        (START + "time.sleep(60)", r"no answer for 0\.5 s"),
        (START + "note(event='error', opening='Hello?', turn=0, error='HTTPStatusError: 500'); time.sleep(60)", "failed: HTTP"),
    ],
)
def test_a_load_that_fails_is_said_in_one_line(tmp_path, monkeypatch, code, message):
    recorder(monkeypatch, code)
    with pytest.raises(UserError, match=message):
        next(drive(Running("http://nowhere", lambda: None), served_run(tmp_path, request_s=0.5), HELLO, tmp_path / "log"))


def test_a_server_that_dies_under_load_is_named_before_the_request_that_it_failed(tmp_path, monkeypatch):
    recorder(monkeypatch, START + "note(event='error', opening='Hello?', turn=0, error='ReadError'); time.sleep(60)")

    def check():
        raise UserError("the server of ar ended with status -9: Killed")

    with pytest.raises(UserError, match="the server of ar ended with status -9"):
        next(drive(Running("http://nowhere", check), served_run(tmp_path), HELLO, tmp_path / "log"))


def test_two_conversations_that_open_alike_are_refused(tmp_path):
    with pytest.raises(UserError, match="two conversations open with the same words"):
        next(drive(Running("http://nowhere", lambda: None), served_run(tmp_path), HELLO * 2, tmp_path / "log"))


def test_prompts_keep_their_order(tmp_path):
    prompts = load_dataset("math", 5)
    scenario = load._scenario("http://nowhere", served_run(tmp_path), prompts, tmp_path / "notes")
    assert [row["prompt_0"] for row in scenario["spec"]["data"][0]["data"]] == [prompt.turns[0] for prompt in prompts]
    assert json.loads(json.dumps(scenario)) == scenario
