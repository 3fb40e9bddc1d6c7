"""Grids on servers: records, journals, and a real server."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from dominotree.compose import load_study
from dominotree.config import DatasetConfig
from dominotree.errors import UserError
from dominotree.paths import record_file
from dominotree.records import read_metadata, read_records, validate
from dominotree.serving import run as serving_run
from dominotree.serving.__main__ import main
from dominotree.serving.load import Answer
from dominotree.serving.run import journal_path, measure_grid, record
from tests.serving.fake import Fake, serve
from tests.serving.runs import served_run, server_config

needs_guidellm = pytest.mark.skipif(
    find_spec("guidellm") is None, reason="guidellm is not installed: pip install -e '.[serving]'"
)
VLLM = {"speculative_decoding": {"num_spec_steps": 3, "acceptance_histogram": [1, 1, 1]}}


def answer(conversation: str, turn: int = 0, first: float | None = 1.5, kept: dict | None = None) -> Answer:
    last = None if first is None else 3.0
    return Answer(conversation, turn, "one two", 20, 8, 1.0, first, last, 3.1, 2.1, kept or {})


def answering(monkeypatch: pytest.MonkeyPatch, stop_after: int = 100, **changes) -> list[str]:
    """Put a load in place that answers by itself, and say for whom it was asked; after `stop_after` it fails."""
    asked: list[str] = []

    def drive(server, run, prompts, log):
        for prompt in prompts:
            if len(asked) == stop_after:
                raise UserError("the request failed")
            asked.append(prompt.id)
            yield [answer(prompt.id, turn, **changes) for turn in range(len(prompt.turns))]

    monkeypatch.setattr(serving_run, "drive", drive)
    return asked


def test_a_record_has_what_the_server_said(tmp_path):
    run = served_run(tmp_path, concurrency=4, arms=("dominotree@32",))
    made = record(run, run.arms[0], "chat", answer("chat-1", kept=VLLM))
    assert (made["num_input"], made["num_output"], made["prefill_s"], made["decode_s"]) == (20, 7, 0.5, 1.5)
    assert made["tps"] == pytest.approx(7 / 1.5) and made["share_s"] == 2.1 and made["concurrency"] == 4
    assert (made["rounds"], made["tau"], made["accept_hist"]) == (3, 7 / 3, [0, 1, 1, 1])
    assert (made["stop_reason"], made["budget"], made["drafter"]) == ("length", 32, "")


def test_what_the_server_did_not_say_is_missing(tmp_path):
    run = served_run(tmp_path)
    made = record(run, run.arms[0], "chat", answer("chat-1", first=None))
    missing = ("prefill_s", "decode_s", "tps", "rounds", "tau", "accept_hist", "prompt_sha", "output_ids", "divergence")
    assert {made[name] for name in missing} == {None}
    with pytest.raises(UserError, match="did not say how many tokens it gave"):
        record(run, run.arms[0], "chat", replace(answer("chat-1"), num_output=None))


@pytest.mark.parametrize("tokens", [1, 8])
@pytest.mark.parametrize(("first", "last"), [(1.5, 1.5), (None, None), (1.5, 3.0)])
def test_an_answer_is_a_record_in_however_many_pieces_it_comes(tmp_path, tokens, first, last):
    run = served_run(tmp_path)
    made = record(run, run.arms[0], "chat", replace(answer("chat-1"), num_output=tokens, first=first, last=last))
    validate(pd.DataFrame([made]), "a record")
    assert made["prefill_s"] == (None if first is None else 0.5)
    assert (made["tps"] is not None) == (tokens == 8 and last == 3.0)


@pytest.mark.parametrize(("tokens", "rounds"), [(1, 1), (3, 4)])
def test_rounds_that_commit_less_than_a_token_each_are_not_believed(tmp_path, tokens, rounds):
    run = served_run(tmp_path)
    said = {"speculative_decoding": {"num_spec_steps": rounds, "acceptance_histogram": [rounds]}}
    made = record(run, run.arms[0], "chat", replace(answer("chat-1", kept=said), num_output=tokens))
    assert {made[name] for name in ("rounds", "tau", "accept_hist")} == {None}
    validate(pd.DataFrame([made]), "a record")


@needs_guidellm
@pytest.mark.parametrize("kept", [{}, VLLM])
@pytest.mark.parametrize("first", [None, 1.5])
def test_records_are_written_once_and_never_measured_again(tmp_path, monkeypatch, kept, first):
    with serve(Fake(pages={"/version": '{"version": "0.30"}'})) as fake:
        run = served_run(tmp_path, url=fake.url)
        asked = answering(monkeypatch, first=first, kept=kept)
        measure_grid([run])
        assert len(asked) == 3
        path = run.records / record_file("chat", 0.0, "ar")
        rows = read_records([path])
        assert sorted(rows.conversation.unique()) == sorted(asked) and (rows.share_s == 2.1).all()
        assert rows.tau.notna().all() == bool(kept) and rows.decode_s.notna().all() == (first is not None)
        about = read_metadata(path)
        assert about["hardware"] == {"machine": "a machine for tests"} and about["server_version"] == "0.30"
        path.unlink()
    measure_grid([run])  # the server is gone, and is not needed
    assert len(asked) == 3 and path.is_file()


@needs_guidellm
def test_a_run_that_failed_goes_on_where_it_stopped(tmp_path, monkeypatch):
    with serve(Fake()) as fake:
        run = served_run(tmp_path, url=fake.url)
        first = answering(monkeypatch, stop_after=2)
        with pytest.raises(UserError, match="the request failed"):
            measure_grid([run])
        assert len(first) == 2 and not list(tmp_path.rglob("*.parquet"))
        second = answering(monkeypatch)
        measure_grid([run])
    assert len(second) == 1 and not set(first) & set(second)
    assert set(read_records([run.records / record_file("chat", 0.0, "ar")]).conversation) == {*first, *second}


@needs_guidellm
def test_journals_of_an_earlier_configuration_are_removed(tmp_path, monkeypatch):
    with serve(Fake()) as fake:
        run = served_run(tmp_path, url=fake.url)
        answering(monkeypatch)
        measure_grid([run])
        other = replace(run, max_new_tokens=9)
        measure_grid([other])
    assert not journal_path(run, run.arms[0]).exists() and journal_path(other, run.arms[0]).exists()


@needs_guidellm
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ("ar", "dominotree@8"), "url": "http://x"}, "server.url is one server, .* has several arms: ar, dominotree@8"),
        ({"url": "http://x", "machine": None}, "say in server.machine what machine that is"),
        ({"launch": ["no-such-server"]}, "no program 'no-such-server'"),
        ({"url": "http://me:secret@x"}, "server.url has a name or a password in it.* DOMINOTREE_API_KEY"),
        ({"launch": ["python", "--api-key", "secret"]}, "--api-key would be in every record; leave it out"),
        ({"launch": ["python", "--api-key=secret"]}, "--api-key would be in every record; leave it out"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        measure_grid([served_run(tmp_path, **changes)])
    assert not list(tmp_path.iterdir())


@needs_guidellm
@pytest.mark.parametrize("key", ["revision", "drafter_revisions.domino"])
def test_a_commit_that_the_server_is_not_told_is_refused(tmp_path, monkeypatch, key):
    method = {"draft": "fake/domino", "flags": ["--draft", "{draft}"]}
    run = served_run(tmp_path, arms=("domino",), launch=[sys.executable], methods={"domino": method})
    model = replace(run.model, drafters={"domino": "fake/domino", "dflash": "fake/dflash"}, drafter_revisions={"dflash": "v9"})
    asked = {"revision": "v2"} if key == "revision" else {"drafter_revisions": model.drafter_revisions | {"domino": "v2"}}
    with pytest.raises(UserError, match=f"model.{key}: the server of domino is not told 'v2'"):
        measure_grid([replace(run, model=replace(model, **asked))])
    told = server_config(launch=[sys.executable, "--revision", "v2"], methods={"domino": method})
    serving_run._check_revisions(replace(run, model=replace(model, **asked), server=told), run.arms[0])


def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"guidellm is not installed, .* pip install -e '\.\[serving\]'"):
        measure_grid([served_run(tmp_path)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study=serving"], "name a study and one of its grids"),
        (["study=serving", "grid=served", "server.kind=x", "variant=v"], "server.kind: .*'sglang', 'vllm' or 'other'"),
        (["study=serving", "grid=served", "grids.served.arms=[dominotre]", "variant=v"], "did you mean dominotree"),
        (["study=serving", "grid=served", "grids.served.arms=[dominotree]", "variant=v"], "the budget must be a positive number"),
        (["study=serving", "grid=served", "server.ready_s=5"], "overrides make another study: name it"),
    ],
)
def test_a_command_that_is_wrong(capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert pd.Series([line]).str.contains(message).all(), line


def test_the_papers_grids_are_on_the_papers_flags():
    study = load_study("serving")
    by_grid = {name: [run for run in study.served if run.grid == name] for name in study.grids}
    assert [runs[0].concurrency for name, runs in by_grid.items() if name.startswith("load")] == [2, 4, 8, 16, 32]
    assert {run.max_new_tokens for run in by_grid["served"]} == {2048} and {run.max_new_tokens for run in by_grid["load_2"]} == {
        512
    }
    assert by_grid["latency_1"][0].server.stream and not by_grid["served"][0].server.stream
    methods = by_grid["served"][0].server.methods
    assert methods["mtp"].flags == (
        "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1",
        "--speculative-num-draft-tokens", "4",
    )  # fmt: skip
    assert by_grid["served"][0].server.body == {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    assert methods["dominotree"].plugin and methods["domino"].draft == methods["dominotree"].draft
    larger = load_study("serving-qwen3.6-27b").served[0]
    assert [arm.label for arm in larger.arms] == ["ar", "mtp", "dflash", "domino", "dominotree@15"]
    assert larger.server.methods["dominotree"].environment == {"DOMINOTREE_CANDIDATE_WIDTH": "128"}


@needs_guidellm
def test_a_server_that_dies_under_load_loses_no_answer(tmp_path):
    """It is started again for what is left, and none of its processes is left behind."""
    asked = tmp_path / "asked"
    code = f"""
        import os, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from http.server import ThreadingHTTPServer
        from pathlib import Path
        from tests.serving import fake
        class Mortal(fake._handler(fake.Fake())):
            def do_POST(self):
                with open({str(asked)!r}, "a") as file: print(os.getpid(), file=file)
                # The first request is the warm-up; a second life is a whole one.
                if Path({str(asked)!r}).read_text().count("\\n") == 3: os._exit(7)
                super().do_POST()
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Mortal).serve_forever()
    """
    run = served_run(tmp_path / "results", launch=[sys.executable, "-c", textwrap.dedent(code), "{port}"])
    run = replace(run, dataset=DatasetConfig("math", None, 3))
    with pytest.raises(UserError, match=r"the server of ar ended with status 7|the request failed: RemoteProtocolError"):
        measure_grid([run])
    assert not list(tmp_path.rglob("*.parquet"))
    measure_grid([run])
    assert len(read_records([run.records / record_file("math", 0.0, "ar")])) == 3
    pids = asked.read_text().split()
    # Warm-up, an answer, and its last request; warm-up and the two answers that were left.
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3]
    assert not any(Path("/proc", pid).exists() for pid in pids)


@needs_guidellm
@pytest.mark.skipif(
    find_spec("uvicorn") is None or find_spec("openai") is None, reason="the server of transformers needs '.[serving]'"
)
def test_a_real_server(tmp_path, tiny_models):
    """transformers' own, on a tiny random model: started, loaded, stopped, and its records have all that it tells."""
    target = str(tiny_models / "target")
    program = str(Path(sys.executable).with_name("transformers"))
    launch = [program, "serve", target, "--host", "127.0.0.1", "--port", "{port}", "--device", "cpu"]
    run = served_run(tmp_path, concurrency=2, launch=launch, model=target, kind="other", ready_s=60.0)
    run = replace(run, dataset=DatasetConfig("math", None, 3))
    measure_grid([run])
    rows = read_records([run.records / record_file("math", 0.0, "ar")])
    assert len(rows) == 3 and (rows.num_output.between(0, 7)).all() and rows.num_input.gt(5).all()
    assert rows.share_s.gt(0).all() and (rows.share_s <= rows.prefill_s + rows.decode_s + 1.0).all()
    assert rows.tau.isna().all()
