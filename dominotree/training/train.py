"""Train a drafter on the target's own corpus. Resumable: a kill loses at most `checkpoint_every` steps."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from dominotree.arms import Positive
from dominotree.errors import UserError
from dominotree.files import atomic_write
from dominotree.models.checkpoint import save_drafter
from dominotree.models.drafter import DRAFTERS, DFlashDrafter, DominoDrafter, DrafterConfig, DrafterKind
from dominotree.models.target import Target
from dominotree.progress import Progress
from dominotree.training.corpus import Conversation
from dominotree.training.features import FeatureStore
from dominotree.training.losses import Batch, LossWeights, drafting_loss, teacher_forced_tau

Count = Annotated[int, Field(ge=0)]
Log = Callable[[dict[str, float], int], None]


@dataclass(frozen=True)
class TrainingConfig:
    """One drafter's training; conf/training/ holds the values and says why."""

    kind: DrafterKind
    steps: Positive
    seed: Count = 0
    sequences_per_step: Positive = 24
    anchors_per_sequence: Positive = 16
    learning_rate: Annotated[float, Field(gt=0)] = 1.5e-3
    warmup_fraction: Annotated[float, Field(ge=0, le=1)] = 0.04
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    position_decay: Annotated[float, Field(gt=0)] = 4.0
    frequent_tokens: Positive = 8192
    sampled_negatives: Count = 1024
    held_out: Positive = 120
    evaluate_every: Positive = 250
    checkpoint_every: Positive = 100
    block_size: Annotated[int, Field(ge=2)] = 8
    num_layers: Positive = 2
    num_features: Positive = 2
    intermediate_size: Positive = 1024
    gru_hidden_dim: Positive = 256
    emb_dim: Positive = 64
    mask_token_id: Count = 16


def feature_layers(num_target_layers: int, count: int) -> tuple[int, ...]:
    """round(linspace(1, L - 3, n)): which target layers feed the drafter."""
    return tuple(int(x) for x in torch.linspace(1, num_target_layers - 3, count).round())


def drafter_config(target: Target, training: TrainingConfig) -> DrafterConfig:
    """The drafter's dimensions: the target's where they are shared, the training's elsewhere."""
    config = target.config
    head = {}
    if training.kind == "domino":
        head = {"pure_draft_prefix_len": 1, "gru_hidden_dim": training.gru_hidden_dim, "emb_dim": training.emb_dim}
    return DrafterConfig(
        kind=training.kind,
        hidden_size=config.hidden_size,
        intermediate_size=training.intermediate_size,
        num_hidden_layers=training.num_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_parameters["rope_theta"],
        block_size=training.block_size,
        mask_token_id=training.mask_token_id,
        target_layer_ids=feature_layers(config.num_hidden_layers, training.num_features),
        num_target_layers=config.num_hidden_layers,
        shift_label=training.kind == "domino",
        **head,
    )


@torch.no_grad()
def initialise_from_target(drafter: DFlashDrafter, target: Target) -> None:
    """Start the layers from the target's last ones, `fc` as the identity on the last feature, W2 at zero.

    Of a wider MLP, the neurons with the largest output weights are kept.
    """
    decoder = target.model.model
    sources = decoder.layers[-len(drafter.layers) :]
    width = drafter.config.intermediate_size
    for layer, source in zip(drafter.layers, sources, strict=True):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            getattr(layer.self_attn, name).weight.copy_(getattr(source.self_attn, name).weight)
        for name in ("q_norm", "k_norm"):
            if hasattr(source.self_attn, name):  # a Llama has none
                getattr(layer.self_attn, name).weight.copy_(getattr(source.self_attn, name).weight)
        kept = source.mlp.down_proj.weight.norm(dim=0).topk(width).indices
        layer.mlp.gate_proj.weight.copy_(source.mlp.gate_proj.weight[kept])
        layer.mlp.up_proj.weight.copy_(source.mlp.up_proj.weight[kept])
        layer.mlp.down_proj.weight.copy_(source.mlp.down_proj.weight[:, kept])
        layer.input_layernorm.weight.copy_(source.input_layernorm.weight)
        layer.post_attention_layernorm.weight.copy_(source.post_attention_layernorm.weight)
    drafter.hidden_norm.weight.copy_(sources[0].input_layernorm.weight)
    drafter.norm.weight.copy_(decoder.norm.weight)
    hidden = drafter.config.hidden_size
    drafter.fc.weight.zero_()
    drafter.fc.weight[:, -hidden:].copy_(torch.eye(hidden))
    if isinstance(drafter, DominoDrafter):
        drafter.correction_rows.zero_()


class Batches:
    """Which conversations and anchors a step sees: a function of seed and step alone, so that a resume repeats it."""

    def __init__(self, store: FeatureStore, indices: Sequence[int], training: TrainingConfig) -> None:
        self.store, self.indices, self.training = store, list(indices), training

    def generator(self, step: int) -> torch.Generator:
        return torch.Generator().manual_seed(self.training.seed * 1_000_003 + step)

    def _conversations(self, step: int) -> list[int]:
        """What a step reads, epoch after epoch in a new order."""
        size, total = self.training.sequences_per_step, len(self.indices)
        places = range(step * size, (step + 1) * size)
        orders = {p // total: torch.randperm(total, generator=self.generator(-1 - p // total)) for p in places}
        return [self.indices[orders[p // total][p % total]] for p in places]

    def assemble(self, conversations: list[int], generator: torch.Generator) -> Batch:
        rows = [self.store.conversations[i] for i in conversations]
        pad = torch.nn.utils.rnn.pad_sequence
        anchors = []
        for row in rows:
            start, end = len(row.prompt_ids), len(row.tokens) - 1
            count = self.training.anchors_per_sequence
            places = torch.randperm(end - start, generator=generator).repeat(-(-count // (end - start)))[:count]
            anchors.append(start + places)
        return Batch(
            tokens=pad([torch.tensor(row.tokens) for row in rows], batch_first=True),
            lengths=torch.tensor([len(row.tokens) for row in rows]),
            anchors=torch.stack(anchors),
            features=pad(self.store.get(conversations), batch_first=True),
        )

    def at(self, step: int) -> Batch:
        return self.assemble(self._conversations(step), self.generator(step))


def split(conversations: Sequence[Conversation], held_out: int, seed: int) -> tuple[list[int], list[int]]:
    """Indices to train on and to evaluate on; conversations with fewer than two response tokens have no label."""
    usable = [i for i, c in enumerate(conversations) if len(c.response_ids) > 1]
    if len(usable) <= held_out:
        raise UserError(
            f"the corpus has {len(usable)} usable conversations, {held_out} of which are held out: nothing to train on"
        )
    order = torch.randperm(len(usable), generator=torch.Generator().manual_seed(seed)).tolist()
    shuffled = [usable[i] for i in order]
    return shuffled[held_out:], shuffled[:held_out]


def frequent_tokens(conversations: Sequence[Conversation], count: int) -> Tensor:
    """The `count` most frequent response tokens, most frequent first."""
    counts: Counter[int] = Counter()
    for conversation in conversations:
        counts.update(conversation.response_ids)
    return torch.tensor([token for token, _ in counts.most_common(count)])


def learning_rate(step: int, training: TrainingConfig) -> float:
    """Linear warm-up, then cosine to zero."""
    warmup = max(1, round(training.warmup_fraction * training.steps))
    if step < warmup:
        return training.learning_rate * (step + 1) / warmup
    return training.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, training.steps - warmup)))


class TrainingState:
    """The drafter with its optimiser, saved and restored as safetensors beside a JSON of the configuration."""

    def __init__(self, drafter: DFlashDrafter, training: TrainingConfig, path: Path) -> None:
        self.drafter, self.training, self.path = drafter, training, path
        self.optimiser = torch.optim.AdamW(
            drafter.parameters(), lr=training.learning_rate, betas=(0.9, 0.98), weight_decay=training.weight_decay
        )

    def save(self, step: int) -> None:
        tensors = {}
        for name, parameter in self.drafter.named_parameters():
            tensors[name] = parameter.detach()
            moments = self.optimiser.state[parameter]
            tensors |= {f"{key}/{name}": moments[key] for key in ("exp_avg", "exp_avg_sq")}
        with atomic_write(self.path) as partial:
            save_file(tensors, partial, metadata={"step": str(step), "training": json.dumps(asdict(self.training))})

    def restore(self) -> int:
        """Read a saved state if there is one and return its step, else 0."""
        if not self.path.is_file():
            return 0
        with safe_open(self.path, framework="pt") as file:
            metadata = file.metadata()
            if json.loads(metadata["training"]) != asdict(self.training):
                raise UserError(f"{self.path} was saved by another training configuration; move it away to start anew")
            step = int(metadata["step"])
            for name, parameter in self.drafter.named_parameters():
                parameter.data.copy_(file.get_tensor(name))
                moments = {key: file.get_tensor(f"{key}/{name}") for key in ("exp_avg", "exp_avg_sq")}
                self.optimiser.state[parameter] = {"step": torch.tensor(float(step)), **moments}
        return step


def train(
    target: Target,
    conversations: Sequence[Conversation],
    training: TrainingConfig,
    features_dir: Path,
    output: Path,
    log: Log,
    start: DFlashDrafter | None = None,
) -> dict[str, float]:
    """Train one drafter and write it to `output`; returns its held-out teacher-forced tau (base and final).

    start: a drafter whose backbone the training begins with, instead of the target's last layers.
    """
    torch.manual_seed(training.seed)
    config = drafter_config(target, training)
    drafter = DRAFTERS[training.kind](config)
    initialise_from_target(drafter, target)
    if start is not None:
        drafter.load_state_dict({k: v for k, v in start.state_dict().items() if k in drafter.state_dict()}, strict=False)
    target = Target(target.model, config.target_layer_ids)
    train_on, evaluate_on = split(conversations, training.held_out, training.seed)
    store = FeatureStore(target, conversations, features_dir)
    store.fill()
    batches = Batches(store, train_on, training)
    frequent = frequent_tokens(conversations, training.frequent_tokens)
    state = TrainingState(drafter, training, output / "training.safetensors")
    first = state.restore()
    embedding, lm_head = target.embedding.detach(), target.lm_head.detach()
    progress = Progress(f"train {training.kind}", training.steps, first)
    scores: dict[str, float] = {}
    for step in range(first, training.steps):
        loss = _step(state, batches, embedding, lm_head, frequent, step)
        log({"loss": loss, "learning_rate": learning_rate(step, training)}, step)
        progress.advance(f"loss {loss:.3f}")
        done = step + 1
        if done % training.checkpoint_every == 0 or done == training.steps:
            state.save(done)
        if done % training.evaluate_every == 0 or done == training.steps:
            scores = evaluate(drafter, batches, evaluate_on, embedding, lm_head)
            log(scores, step)
    progress.close()
    scores = scores or evaluate(drafter, batches, evaluate_on, embedding, lm_head)
    save_drafter(drafter, output)
    return scores


def _step(state: TrainingState, batches: Batches, embedding: Tensor, lm_head: Tensor, frequent: Tensor, step: int) -> float:
    training = state.training
    weights = LossWeights(base=1 - step / training.steps, decay=training.position_decay)
    batch, generator = batches.at(step), batches.generator(step)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = drafting_loss(state.drafter, embedding, lm_head, batch, frequent, training.sampled_negatives, weights, generator)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(state.drafter.parameters(), 1.0)
    for group in state.optimiser.param_groups:
        group["lr"] = learning_rate(step, training)
    state.optimiser.step()
    state.optimiser.zero_grad()
    return loss.item()


def evaluate(
    drafter: DFlashDrafter, batches: Batches, held_out: Sequence[int], embedding: Tensor, lm_head: Tensor
) -> dict[str, float]:
    """Teacher-forced tau of the base and of the final logits, on held-out conversations with fixed anchors."""
    few = Batches(batches.store, held_out, replace(batches.training, anchors_per_sequence=16))
    pairs = []
    for first in range(0, len(held_out), 8):
        batch = few.assemble(list(held_out[first : first + 8]), few.generator(first))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pairs.append(teacher_forced_tau(drafter, embedding, lm_head, batch))
    base, final = torch.tensor(pairs).mean(0).tolist()
    return {"held_out_tau_base": base, "held_out_tau": final}
