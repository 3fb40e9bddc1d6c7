"""Make drafters: python -m dominotree.training {corpus,train} [group=option ...] [key=value ...].

corpus  let the target write a corpus      output=corpus.jsonl corpus.batches=240
train   train a drafter on corpus files    training=dflash output=drafter start=domino 'conversations=[corpus.jsonl]'

conf/drafters.yaml names every key. Both go on where they were cut short.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from dominotree.compose import compose_drafters
from dominotree.config import DraftersConfig, parse
from dominotree.errors import UserError, exit_on_user_error
from dominotree.models.checkpoint import load_drafter
from dominotree.models.target import Target, load_target, load_tokenizer
from dominotree.tracking import track_run
from dominotree.training.corpus import CorpusConfig, read_corpus
from dominotree.training.generate import write_corpus
from dominotree.training.train import TrainingConfig, train

CPU = torch.device("cpu")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def corpus(config: DraftersConfig, output: Path) -> None:
    """Let the target write `output`."""
    settings = parse(CorpusConfig, config.corpus, "corpus")
    with track_run(config.tracking, "drafters", "corpus", output.name, [config.model.name], asdict(settings)) as run:
        write_corpus(_target(config), load_tokenizer(config.model.target, config.model.revision), settings, output)
        conversations = read_corpus(output)
        run.summary({"conversations": len(conversations), "response_tokens": sum(len(c.response_ids) for c in conversations)})


def train_drafter(config: DraftersConfig, output: Path) -> None:
    """Train a drafter into the folder `output`."""
    settings = parse(TrainingConfig, config.training, "training")
    conversations = [c for path in config.conversations for c in read_corpus(Path(path))]
    start = load_drafter(Path(config.start), "domino", torch.float32, CPU) if config.start else None
    tags = [config.model.name, settings.kind]
    with track_run(config.tracking, "drafters", "train", output.name, tags, asdict(settings)) as run:
        scores = train(_target(config), conversations, settings, Path(config.features), output, run.log, start)
        run.summary(scores)
        run.artifact(f"drafter {settings.kind}", "drafter", [output / "config.json", output / "model.safetensors"])
    print(", ".join(f"{name} {score:.3f}" for name, score in scores.items()))


def _keep_freed_memory() -> None:
    """Let glibc keep what torch frees: a step's large buffers then cost no page faults."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            libc.mallopt(option, 2**31 - 1)


def _target(config: DraftersConfig) -> Target:
    _keep_freed_memory()
    torch.set_num_threads(config.engine.num_threads)
    return load_target(config.model.target, getattr(torch, config.model.dtype), CPU, config.model.revision)


STAGES = {"corpus": corpus, "train": train_drafter}


@exit_on_user_error
def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dominotree.training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    options = parser.parse_args()
    config = compose_drafters(options.overrides)
    if config.output is None:
        raise UserError("output has no value; say where to write, as in output=...")
    STAGES[options.stage](config, Path(config.output))


if __name__ == "__main__":
    main()
