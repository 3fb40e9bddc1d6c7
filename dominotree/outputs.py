"""What the arms of a run answered, as text beside each other, marked where an answer leaves AR's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

MARK = "\N{LEFT WHITE SQUARE BRACKET}", "\N{RIGHT WHITE SQUARE BRACKET}"
"""Around what comes after the first token that differs."""


def side_by_side(records: pd.DataFrame, prompts: Mapping[str, Sequence[str]], decode: Callable[[list[int]], str]) -> pd.DataFrame:
    """A row for each prompt-turn: the user's words, the arms whose answer differs from AR's, and the answer of every arm.

    prompts: the user's turns by conversation. decode: token ids as text.
    """
    rows = []
    for (conversation, turn), answers in records.groupby(["conversation", "turn"], sort=False):
        divergent = answers.arm[answers.divergence.ge(0).fillna(False)]
        place = {"conversation": conversation, "turn": turn, "prompt": prompts[conversation][turn]}
        texts = {row.arm: marked(row.output_ids, row.divergence, decode) for row in answers.itertuples()}
        rows.append({**place, "divergent": ", ".join(divergent), **texts})
    return pd.DataFrame(rows)


def marked(ids: list[int], divergence: int | None, decode: Callable[[list[int]], str]) -> str:
    """An answer as text, from its first token that differs from AR's on between marks."""
    if pd.isna(divergence) or divergence < 0:
        return decode(ids)
    return f"{decode(ids[:divergence])}{MARK[0]}{decode(ids[divergence:])}{MARK[1]}"
