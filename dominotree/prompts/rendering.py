"""From messages to what the target reads: its own chat template, with thinking off."""

from __future__ import annotations

import hashlib
from typing import Any

from dominotree.errors import UserError

MARKER = "THE-USER-TURN"


def _apply_template(tokenizer: Any, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
    try:
        template = tokenizer.get_chat_template()
    except ValueError:
        raise UserError(f"the tokenizer of {tokenizer.name_or_path} has no chat template; an instruct model is needed") from None
    # A template that does not know thinking would pass over the switch in silence, and one that does has it on by default.
    thinking = {"enable_thinking": False} if "enable_thinking" in template else {}
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=add_generation_prompt, **thinking)


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text that has its special tokens written out already."""
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def render(tokenizer: Any, messages: list[dict[str, str]]) -> tuple[str, list[int]]:
    """The prompt that asks for the assistant's next message, as text and as token ids.

    messages: `{"role": "user" or "assistant", "content": ...}` each. Raises `UserError` if there is no chat template.
    """
    text = _apply_template(tokenizer, messages, add_generation_prompt=True)
    return text, encode(tokenizer, text)


def turn_frame(tokenizer: Any) -> tuple[str, str]:
    """What the chat template writes before and after the first user turn of a conversation."""
    text = _apply_template(tokenizer, [{"role": "user", "content": MARKER}], add_generation_prompt=False)
    opening, _, closing = text.partition(MARKER)
    return opening, closing


def prompt_sha(text: str) -> str:
    """SHA-256 of a rendered prompt, by which records show that two runs saw the same one."""
    return hashlib.sha256(text.encode()).hexdigest()
