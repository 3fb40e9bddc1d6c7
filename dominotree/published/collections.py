"""The authors' collections in the research harness as records of the study `published`, with their conventions by name.

Three harnesses measured the main results of each model: CaDDTree's repository (AR, DFlash, DDTree, CaDDTree), Domino's decoder
(the chain, eager and as a CUDA graph) and the authors' own (AR, chain, DominoTree). Rows are prompt-turns. A record's `run` names
the harness whose AR is its denominator, so that comparisons between harnesses are between speedups.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path

import numpy as np
import pandas as pd

from dominotree.records import PUBLISHED, PUBLISHED_RECORDS, validate

FAMILY = {
    "gsm8k": "math",
    "math500": "math",
    "aime25": "math",
    "humaneval": "code",
    "mbpp": "code",
    "livecodebench": "code",
    "mt-bench": "chat",
    "alpaca": "chat",
}
DATASETS = tuple(FAMILY)
TEMPERATURES = (0.0, 0.5, 1.0)
MAX_NEW_TOKENS = 2048
HEAD = 128
"""Of an output they published so many tokens, and a signature of all."""

TURNS = 2
"""Of a conversation of MT-Bench."""

PLACE = ["dataset", "temperature", "conversation", "turn"]
STAGES = ["ms_draft", "ms_build", "ms_verify", "ms_commit"]


@dataclass(frozen=True)
class Model:
    """name: in our studies. size, raw: in theirs, the size and where its collections lie. drafters: on the Hub, by kind."""

    name: str
    size: str
    raw: str
    drafters: Mapping[str, str]


def _model(size: str, raw: str) -> Model:
    drafters = {
        "dflash": f"z-lab/Qwen3-{size}-DFlash-b16",
        "domino": f"Huang2020/Qwen3-{size}-Domino-b16",
        "eagle3": "EAGLE-3",  # whose weights they do not name
    }
    return Model(f"qwen3-{size.lower()}", size.lower(), raw, drafters)


MODELS = {"": _model("4B", "raw"), "_8b": _model("8B", "raw/8b")}
"""By what the names of their grids end in."""


@dataclass(frozen=True)
class Arm:
    """label, method, budget: as in records. drafter: its kind, None without one."""

    label: str
    method: str
    drafter: str | None
    budget: int | None = None


AR = Arm("ar", "ar", None)
REFERENCE_AR = Arm("ar+caddtree", "ar", None)
CHAIN = Arm("domino", "domino", "domino")
TREE = Arm("dominotree@16", "dominotree", "domino", 16)
REFERENCE = {
    "baseline": REFERENCE_AR,
    "dflash": Arm("dflash", "dflash", "dflash"),
    "ddtree_tb16": Arm("ddtree@16", "ddtree", "dflash", 16),
    "caddtree": Arm("caddtree", "caddtree", "dflash"),
}
"""The arms of CaDDTree's repository by their names there; its AR is the denominator of its arms alone."""

LADDER = {
    "ar": AR,
    "marg@16": Arm("marginal@16", "marginal", "domino", 16),
    "condstatic@16": Arm("static@16", "static", "domino", 16),
    "dominotree@16": TREE,
}
SAMPLED = {False: {"chain": CHAIN, "dominotree@16": TREE}}
SAMPLED[True] = {name: Arm(f"{arm.label}+sampled", arm.method, "domino", arm.budget) for name, arm in SAMPLED[False].items()}
SAMPLED_DATASETS = ("gsm8k", "humaneval", "alpaca")


# --- reading -------------------------------------------------------------------------------------------------------------


def read_lines(path: Path) -> Iterator[dict]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines)


def read_rows(
    folder: Path,
    datasets: Sequence[str] = DATASETS,
    temperatures: Sequence[float] = TEMPERATURES,
    name: str = "{dataset}_T{temperature}",
) -> pd.DataFrame:
    """The rows of a collection's files, called `name`, with our names for the columns that a record has."""
    rows = []
    for dataset, temperature in product(datasets, temperatures):
        path = folder / f"{name.format(dataset=dataset, temperature=temperature)}.jsonl"
        rows += [row | {"dataset": dataset, "temperature": temperature} for row in read_lines(path)]
    frame = pd.DataFrame(rows).rename(columns={"sample_idx": "conversation", "turn_index": "turn", "mean_accept": "tau"})
    frame = frame.rename(
        columns={"decode_time": "decode_s", "decode_rounds": "rounds", "out_sig": "signature", "out_head": "head"}
    )
    return frame if "turn" in frame else number_turns(frame)


def read_decoder(folder: Path, mode: str) -> pd.DataFrame:
    """The rows of Domino's own decoder, in the same columns; `acceptance_lengths` becomes tau, rounds and accept_hist.

    mode: how it ran, "graph" or "eager".
    """
    rows = []
    for temperature, dataset in product(TEMPERATURES, DATASETS):
        for line in read_lines(folder / f"T{temperature}" / f"{mode}_{dataset}.jsonl"):
            [answer] = [choice for choice in line["choices"] if choice["turns"]]
            fields = zip(answer["new_tokens"], answer["decode_times"], answer["acceptance_lengths"], strict=True)
            for turn, (num_output, seconds, accepted) in enumerate(fields):
                place = {"dataset": dataset, "temperature": temperature, "conversation": line["question_id"], "turn": turn}
                counts = {"num_output": num_output, "rounds": len(accepted), "accept_hist": np.bincount(accepted).tolist()}
                rows.append(place | counts | {"decode_s": seconds, "tps": num_output / seconds, "tau": float(np.mean(accepted))})
    return pd.DataFrame(rows)


# --- the authors' conventions --------------------------------------------------------------------------------------------


def number_turns(rows: pd.DataFrame) -> pd.DataFrame:
    """8B's rows of CaDDTree's repository number prompt-turns, not conversations: 0 to 99 on MT-Bench, two a conversation."""
    turns = np.where(rows.dataset == "mt-bench", TURNS, 1)
    return rows.assign(turn=rows.conversation % turns, conversation=rows.conversation // turns)


def leave_out(rows: pd.DataFrame, cold: pd.Series) -> pd.DataFrame:
    """Rows that the authors leave out of every mean, as cold, stay as records without a time."""
    return rows.assign(tps=rows.tps.mask(cold), decode_s=rows.decode_s.mask(cold))


def leave_out_first_row(rows: pd.DataFrame) -> pd.DataFrame:
    """4B, own harness: the first row of each dataset, temperature and method, on MT-Bench one turn of two."""
    return leave_out(rows, (rows.conversation == 0) & (rows.turn == 0))


def leave_out_first_prompt(rows: pd.DataFrame) -> pd.DataFrame:
    """8B, Domino's decoder: the first prompt of each dataset and temperature, on MT-Bench both of its turns."""
    return leave_out(rows, rows.conversation == 0)


def faster_mode(graph: pd.DataFrame, eager: pd.DataFrame) -> pd.DataFrame:
    """Domino's decoder at its best: in each dataset and temperature the rows of the mode with the higher mean tokens a second."""
    settings = zip(*(list(rows.groupby(["dataset", "temperature"])) for rows in (graph, eager)), strict=True)
    chosen = [max(modes, key=lambda rows: rows.tps.mean()) for modes in (([part for _, part in pair]) for pair in settings)]
    return pd.concat(chosen, ignore_index=True)


# --- records -------------------------------------------------------------------------------------------------------------


def committed_rounds(num_output: int, tau: float) -> int:
    """The rounds of a row of the own harness, whose tau is all tokens committed over rounds, those beyond the limit included."""
    return next(rounds for rounds in count(math.ceil(num_output / tau - 1e-9)) if abs(rounds * tau - round(rounds * tau)) < 1e-6)


def first_difference(head: Sequence[int], other: Sequence[int]) -> int | None:
    """Where two beginnings of outputs differ, a missing token being a difference; None if they do not."""
    place = next((i for i, (token, wanted) in enumerate(zip(head, other, strict=False)) if token != wanted), None)
    return min(len(head), len(other)) if place is None and len(head) != len(other) else place


def as_records(rows: pd.DataFrame, arms: Mapping[str, Arm], model: Model, run: str) -> pd.DataFrame:
    """The rows of `arms`, given by their names in column `method`, as records; what the authors did not publish is missing."""
    rows = rows[rows.method.isin(arms)].reset_index(drop=True)
    frame = pd.DataFrame({name: rows[name] for name in (*PLACE, "tps", "tau")})
    chosen = [arms[name] for name in rows.method]
    frame = frame.assign(
        family=frame.dataset.map(FAMILY),
        **{f"{stage[3:]}_ms": _stage(rows, stage) for stage in STAGES},
        **{name: rows.get(name) for name in ("num_output", "decode_s", "accept_hist")},
        rounds=_rounds(rows),
        divergence=_divergence(rows),
        output_sha=rows.get("signature"),
        output_ids=[head if len(head) < HEAD else None for head in rows["head"]] if "head" in rows else None,
    )
    stopped = frame.num_output.map({MAX_NEW_TOKENS: "length"}).fillna("eos").where(frame.num_output.notna())
    return completed(frame.assign(stop_reason=stopped), chosen, model, run)


def completed(frame: pd.DataFrame, arms: Sequence[Arm], model: Model, run: str) -> pd.DataFrame:
    """`frame`, one row for each of `arms`, with every column of a record: what it lacks is missing."""
    bins = ("nodes_by_bin", "forecast_by_bin", "accepted_by_bin")
    frame = frame.assign(
        study=PUBLISHED,
        run=[f"{model.name} {run} {row.dataset} t{row.temperature:g}" for row in frame.itertuples()],
        model=model.name,
        drafter=[model.drafters[arm.drafter] if arm.drafter else "" for arm in arms],
        arm=[arm.label for arm in arms],
        method=[arm.method for arm in arms],
        budget=pd.array([arm.budget for arm in arms], dtype="Int64"),
        conversation=frame.dataset + frame.conversation.map("-{:02d}".format),
        turn=frame.turn.astype(int),
        concurrency=1,
        **{name: [[] for _ in range(len(frame))] for name in bins},
    )
    columns = list(PUBLISHED_RECORDS.columns)
    missing = dict.fromkeys(name for name in columns if name not in frame)
    return validate(frame.assign(**missing)[columns], f"{model.name} {run}")


def _stage(rows: pd.DataFrame, stage: str) -> pd.Series | None:
    """Milliseconds a round. A zero means that the stage was not timed on its own: it stands in AR's rows and in lumped ones."""
    return rows[stage].where(rows[stage] > 0) if stage in rows else None


def _rounds(rows: pd.DataFrame) -> pd.Series | list[int] | None:
    if "rounds" in rows:
        return rows["rounds"]
    if "num_output" in rows:
        return [committed_rounds(row.num_output, row.tau) for row in rows.itertuples()]
    return None


def _divergence(rows: pd.DataFrame) -> list[int | None] | None:
    """At temperature 0, from the AR of the same collection; HEAD stands for all places beyond what was published of an output."""
    if "head" not in rows or "ar" not in set(rows.method):
        return None
    reference = {
        (row.dataset, row.temperature, row.conversation, row.turn): row for row in rows[rows.method == "ar"].itertuples()
    }
    found = []
    for row in rows.itertuples():
        other = reference[row.dataset, row.temperature, row.conversation, row.turn]
        place = first_difference(row.head, other.head)
        known = place if place is not None else -1 if row.signature == other.signature else HEAD
        found.append(known if row.temperature == 0 else None)
    return found


# --- grids ---------------------------------------------------------------------------------------------------------------


def main_records(root: Path, model: Model) -> pd.DataFrame:
    """The records of Table 1 and of the pairwise comparisons: three harnesses, two ARs."""
    raw = root / model.raw
    reference, own = read_rows(raw / "baseline_ddtree_caddtree"), read_rows(raw / "dominotree")
    decoder = raw / "domino_official" / f"qwen3-{model.size}"
    domino = faster_mode(read_decoder(decoder, "graph"), read_decoder(decoder, "eager")).assign(method="domino")
    if model.size == "4b":
        own = leave_out_first_row(own)
    else:
        domino = leave_out_first_prompt(domino)
    parts = [
        as_records(reference, REFERENCE, model, "CaDDTree's harness"),
        as_records(own, {"ar": AR, "dominotree@16": TREE}, model, "own harness"),
        as_records(domino, {"domino": CHAIN}, model, "own harness"),  # whose AR is its denominator
    ]
    return pd.concat(parts, ignore_index=True)


def ladder_records(root: Path, builder: str) -> pd.DataFrame:
    """The records of the conditioning ladder, all arms with one builder ("matched") or each with its best ("best")."""
    rows = read_rows(root / "conditioning_ladder" / f"{builder}_builder", temperatures=TEMPERATURES[:1])
    return as_records(rows, LADDER, MODELS[""], f"ladder, {builder} builder")


def sampled_records(root: Path) -> pd.DataFrame:
    """The records of Table 13: chain and tree, each with a greedy and a sampled draft."""
    folder, parts = root / "raw" / "draft_sampling_ablation", []
    for sampled, arms in SAMPLED.items():
        name = f"draftsample_{{dataset}}_T{{temperature}}_{'on' if sampled else 'off'}"
        rows = read_rows(folder, SAMPLED_DATASETS, TEMPERATURES[1:], name)
        parts.append(as_records(rows, arms, MODELS[""], "draft sampling"))
    return pd.concat(parts, ignore_index=True)
