"""What servers say of their drafts, in the forms that they document."""

from __future__ import annotations

import json

import pytest

from dominotree.serving import acceptance as acceptance_module
from dominotree.serving.acceptance import ADAPTERS, Acceptance
from dominotree.serving.http import Refused

SGLANG = {"meta_info": {"completion_tokens": 291, "spec_verify_ct": 23, "spec_accept_length": 12.65, "e2e_latency": 0.39}}
VLLM = {
    "speculative_decoding": {
        "mean_acceptance_length": 1.2325581395348837,
        "draft_acceptance_rate": 0.0775,
        "acceptance_histogram": [39, 1, 0, 3],
        "num_spec_steps": 43,
        "num_accepted_draft_tokens": 10,
        "num_draft_tokens": 129,
        "num_spec_tokens": 3,
    }
}
COUNTERS = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="0"}} 9.0
"""


class Server:
    """Answers from `pages`, in turn where there are several, and says what it was asked."""

    def __init__(self, **pages: str | list[str]) -> None:
        self.pages, self.asked = pages, []

    def __call__(self, path: str, body: object = None) -> str:
        self.asked.append((path, body))
        page = self.pages.get(path.strip("/"))
        if page is None:
            raise Refused("404 Not Found: ")
        return page.pop(0) if isinstance(page, list) else page


def test_sglang_counts_the_rounds_of_an_answer():
    assert ADAPTERS["sglang"].of_answer(SGLANG) == Acceptance(23)


def test_vllm_counts_rounds_by_accepted_drafts_which_we_count_with_the_bonus_token():
    acceptance = ADAPTERS["vllm"].of_answer(VLLM)
    assert acceptance == Acceptance(43, [0, 39, 1, 0, 3])
    assert sum(acceptance.histogram) == acceptance.rounds
    assert sum(i * rounds for i, rounds in enumerate(acceptance.histogram)) == pytest.approx(43 * 1.2325581395348837)


def test_sglang_counts_rounds_by_accepted_drafts_where_it_does():
    said = {"spec_verify_ct": 33, "spec_num_correct_drafts": 69, "spec_correct_drafts_histogram": [4, 10, 7, 7, 3, 1, 0, 1]}
    acceptance = ADAPTERS["sglang"].of_answer({"meta_info": said})
    assert acceptance == Acceptance(33, [0, 4, 10, 7, 7, 3, 1, 0, 1])
    assert sum(i * rounds for i, rounds in enumerate(acceptance.histogram)) == 33 + 69


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("sglang", {"meta_info": {"spec_verify_ct": 3, "spec_correct_drafts_histogram": [1, 1]}}),
        ("vllm", {"speculative_decoding": {"num_spec_steps": 3, "acceptance_histogram": [1, 1]}}),
    ],
)
def test_a_histogram_that_lacks_rounds_is_missing(kind, kept):
    assert ADAPTERS[kind].of_answer(kept) == Acceptance(3)


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("kept", [{}, {"meta_info": {"completion_tokens": 3}}, {"speculative_decoding": None}])
def test_what_is_not_said_is_missing(kind, kept):
    assert ADAPTERS[kind].of_answer(kept) is None


def test_sglang_forgets_what_came_before_a_session_and_tells_its_mean_after_it():
    info = json.dumps({"internal_states": [{"avg_spec_accept_length": 7.21}]})
    for pages in ({"server_info": info}, {"get_server_info": info}):
        server = Server(flush_cache="", **pages)
        begun = ADAPTERS["sglang"].begin(server)
        assert server.asked == [("/flush_cache", {})]
        assert ADAPTERS["sglang"].tau(server, begun) == 7.21


def test_sglang_is_asked_again_until_it_forgets(monkeypatch):
    """It refuses while requests are on its books, the warm-up or its own; its mean is then over those too."""
    refusals = iter([Refused("400 Bad Request: pending"), Refused("400 Bad Request: pending"), None])

    def fetch(path: str, body: object = None) -> str:
        if path == "/flush_cache" and (refused := next(refusals)):
            raise refused
        return json.dumps({"internal_states": [{"avg_spec_accept_length": 7.21}]})

    monkeypatch.setattr(acceptance_module, "FLUSH_S", 0.5)
    assert ADAPTERS["sglang"].tau(fetch, ADAPTERS["sglang"].begin(fetch)) == 7.21
    refusals = iter([Refused("400 Bad Request: pending")] * 100)
    assert ADAPTERS["sglang"].tau(fetch, ADAPTERS["sglang"].begin(fetch)) is None


@pytest.mark.parametrize(
    "page", ["", "[]", "7", "{}", '{"internal_states": []}', '{"internal_states": [{}]}', '{"internal_states": [7]}']
)
def test_whatever_sglang_says_a_finished_session_is_kept(page):
    server = Server(flush_cache="", server_info=page, get_server_info=page)
    assert ADAPTERS["sglang"].tau(server, ADAPTERS["sglang"].begin(server)) is None


@pytest.mark.parametrize(
    "after", ["vllm:spec_decode_num_drafts_total x\nvllm:spec_decode_num_accepted_tokens_total y\n", COUNTERS]
)
def test_counters_of_vllm_that_say_nothing_of_a_session_are_not_used(after):
    """Not numbers, or less than before: another server is at the address."""
    pages = [COUNTERS.format(drafts="100.0", accepted="50.0"), after.format(drafts="3.0", accepted="2.0")]
    server = Server(metrics=pages)
    assert ADAPTERS["vllm"].tau(server, ADAPTERS["vllm"].begin(server)) is None


def test_vllm_counts_what_a_session_added():
    server = Server(
        metrics=[COUNTERS.format(drafts="100.0", accepted="50.0"), COUNTERS.format(drafts="1.4e+02", accepted="150.0")]
    )
    begun = ADAPTERS["vllm"].begin(server)
    assert ADAPTERS["vllm"].tau(server, begun) == pytest.approx(1 + 100 / 40)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_a_server_that_tells_nothing_is_asked_in_vain(kind, monkeypatch):
    monkeypatch.setattr(acceptance_module, "FLUSH_S", 0.1)
    server = Server(metrics="vllm:num_requests_running 0\n", server_info="{}")
    assert ADAPTERS[kind].tau(server, ADAPTERS[kind].begin(server)) is None
    assert ADAPTERS[kind].tau(Server(), ADAPTERS[kind].begin(Server())) is None


@pytest.mark.parametrize(
    ("kind", "page"), [("sglang", "server_info"), ("sglang", "get_server_info"), ("vllm", "version"), ("other", None)]
)
def test_a_server_says_its_version(kind, page):
    said = ADAPTERS[kind].version(Server(**({page: '{"version": "0.9.1", "more": 1}'} if page else {})))
    assert said == ("0.9.1" if page else None)
    for silent in (Server(), Server(version="[]", server_info="no")):
        assert ADAPTERS[kind].version(silent) is None
