from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from dominotree.errors import UserError
from dominotree.prompts.rendering import prompt_sha, render, turn_frame

THINKING = (
    "{% for m in messages %}<start> {{ m['role'] }} {{ m['content'] }} <end> {% endfor %}{% if add_generation_prompt %}"
    "<start> assistant {% if enable_thinking is defined and enable_thinking is false %}help {% endif %}{% endif %}"
)


def test_render(make_tokenizer: Callable[..., Any]) -> None:
    messages = [
        {"role": "user", "content": "add two and three"},
        {"role": "assistant", "content": "the sum"},
        {"role": "user", "content": "why"},
    ]
    tokenizer = make_tokenizer()
    text, ids = render(tokenizer, messages)
    assert text == (
        "<start> system you help <end> <start> user add two and three <end> "
        "<start> assistant the sum <end> <start> user why <end> <start> assistant "
    )
    assert tokenizer.convert_ids_to_tokens(ids) == text.split()


def test_thinking_is_off_where_the_template_knows_it(make_tokenizer: Callable[..., Any]) -> None:
    text, _ = render(make_tokenizer(THINKING), [{"role": "user", "content": "why"}])
    assert text == "<start> user why <end> <start> assistant help "


def test_no_chat_template(make_tokenizer: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="no chat template"):
        render(make_tokenizer(None), [{"role": "user", "content": "why"}])


def test_turn_frame(make_tokenizer: Callable[..., Any]) -> None:
    assert turn_frame(make_tokenizer()) == ("<start> system you help <end> <start> user ", " <end> ")


def test_sha_is_of_the_text() -> None:
    assert prompt_sha("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_no_heavy_imports() -> None:
    code = "import sys, dominotree.prompts.rendering; print({'torch', 'transformers'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
