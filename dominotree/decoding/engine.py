"""The loop of rounds, for one request or for several in lockstep: plain autoregression, and draft, build, verify, commit.

As many requests are in flight as there are slots: when one ends, the next takes its slot, and its prefill comes between two
rounds. Each request's tokens are those that it gets alone, up to rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import accumulate, chain, cycle
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.decoding.cache import TargetCache
from dominotree.decoding.clock import Clock
from dominotree.decoding.draft import Draft, Drafting
from dominotree.decoding.requests import Client, Generation, Output, Request, Round, StageTimes
from dominotree.decoding.sampling import Places
from dominotree.decoding.verify import Accepted, accept, ahead, next_input, verify_input
from dominotree.drafting.tree import DraftTree
from dominotree.models.drafter import DFlashDrafter
from dominotree.models.target import Target

STAGES = tuple(field.name for field in fields(StageTimes))

Histories = Sequence[Sequence[Round]]
"""The rounds that each request in flight has been through."""

Build = Callable[[Draft, Histories], DraftTree]
"""The trees of a draft."""

Worth = Callable[[Sequence[int], Histories], bool]
"""Whether drafting is worth its cost in this round, given each request's context in tokens, and the rounds of each slot, by
whichever requests. If not, the target runs alone."""


def always(contexts: Sequence[int], histories: Histories) -> bool:
    return True


@dataclass(frozen=True)
class Speculation:
    """How rounds are drafted. `build` makes trees of at most `max_nodes` nodes, dead leaves included."""

    drafter: DFlashDrafter
    build: Build
    max_nodes: int
    worth: Worth = always


@dataclass
class Seat:
    """A request in flight. number: of the client that asks, None if it only keeps the load up."""

    number: int | None
    client: Client
    request: Request
    output: Output
    rounds: list[Round] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)

    def generation(self) -> Generation:
        """The request's answer, and its times."""
        seconds, output = self.seconds, self.output
        stages = StageTimes(**{stage: seconds[stage] for stage in STAGES})
        times = (seconds["prefill"], seconds["decode"], seconds["share"])
        return Generation(output.tokens, output.stopped_by_eos, *times, self.rounds, stages)


@dataclass(frozen=True)
class Interval:
    """Between two marks of the clock: a stage of a round of all `seats`, or the prefill of one, for which the others wait."""

    stage: str
    seats: tuple[Seat, ...]
    prefilled: Seat | None = None

    def spend(self, seconds: float) -> None:
        """Let it be known that it took so long."""
        for seat in self.seats:
            seat.seconds["share"] += seconds / len(self.seats)
            if self.prefilled is None:
                seat.seconds[self.stage] += seconds
            seat.seconds["prefill" if seat is self.prefilled else "decode"] += seconds


def generate(target: Target, speculation: Speculation | None, request: Request) -> Generation:
    """Decode one request; without `speculation` one token a pass, the lean loop that every speedup is measured against."""
    longest = len(request.prompt) + request.limits.max_new_tokens
    return serve(target, speculation, [partial(ask_once, request)], 1, longest)[0]


def ask_once(request: Request) -> Client:
    """A client of one request, whose answer it returns."""
    return (yield request)


@torch.inference_mode()
def serve(
    target: Target, speculation: Speculation | None, clients: Sequence[Callable[[], Client]], slots: int, longest: int
) -> list[Any]:
    """Serve all clients, `slots` requests at a time, and return what each client returned.

    longest: tokens of the longest request with its answer. While a client is waited for, clients from the first on ask again
    in the slots that are free, so that the load stays what it is; nobody learns what they get. `target` must give the
    features of the drafter's `target_layer_ids`. With keyed or greedy samplers the tokens are those of plain decoding.
    """
    return Flight(target, speculation, clients, slots, longest).serve()


class Flight:
    """The requests in flight, a slot each."""

    def __init__(
        self, target: Target, speculation: Speculation | None, clients: Sequence[Callable[[], Client]], slots: int, longest: int
    ) -> None:
        self.target, self.speculation, self.clients, self.longest = target, speculation, clients, longest
        capacity = longest + (speculation.max_nodes if speculation else 0) + 1
        self.cache = TargetCache(target, capacity, slots)
        self.drafting = Drafting(speculation.drafter, target, capacity, slots) if speculation else None
        self.roots = torch.zeros(slots, dtype=torch.int64, device=target.device)
        self.past: list[list[Round]] = [[] for _ in range(slots)]  # of each slot, by whichever requests
        self.clock, self.intervals = Clock(target.device), list[Interval]()
        self.queue = chain(enumerate(clients), ((None, client) for client in cycle(clients)))
        self.seats: list[Seat] = []
        self.results: dict[int, Any] = {}

    def serve(self) -> list[Any]:
        """See `serve`."""
        slots = len(self.roots)
        self.clock.mark()
        for slot in range(slots):
            self._admit_next(slot)
        while True:
            for slot in range(slots):
                self._answer(slot)
            if len(self.results) == len(self.clients):
                return [self.results[number] for number in range(len(self.clients))]
            self._round()

    def _answer(self, slot: int) -> None:
        """Give a client its answer if it is there, and the slot to its next request, or to the next client."""
        while (seat := self.seats[slot]).output.done:
            self._settle()
            try:
                request = seat.client.send(seat.generation())
            except StopIteration as end:
                if seat.number is not None:
                    self.results[seat.number] = end.value
                if len(self.results) == len(self.clients):
                    return
                self._admit_next(slot)
                if self.seats[slot].number is None:
                    return  # even if it has ended already: whoever is waited for may be in another slot
            else:
                self._admit(slot, Seat(seat.number, seat.client, request, Output(request.limits)))

    def _admit_next(self, slot: int) -> None:
        number, start = next(self.queue)
        client = start()
        request = next(client)
        self._admit(slot, Seat(number, client, request, Output(request.limits)))

    def _admit(self, slot: int, seat: Seat) -> None:
        """Run a request's prompt, which gives its first token."""
        needed = len(seat.request.prompt) + seat.request.limits.max_new_tokens
        if needed > self.longest:
            raise ValueError(f"a request takes {needed} tokens with its answer, and {self.longest} are reserved")
        self.seats[slot : slot + 1] = [seat]
        others = tuple(other for other in self.seats if other is not seat and not other.output.done)
        self._mark(Interval("wait", others))
        prompt, cache = seat.request.prompt, self.cache.slot(slot)
        tokens = torch.tensor([prompt], device=self.target.device)
        passed = self.target.forward(tokens, torch.arange(len(prompt), device=tokens.device).unsqueeze(0), cache=cache)
        self.cache.start(slot, len(prompt))
        places = Places.at(len(prompt), tokens.device)
        self.roots[slot : slot + 1] = seat.request.sampler.sample(self.target.logits(passed.hidden[:, -1]), places)
        if self.drafting:
            self.drafting.start(slot, passed.features)
        seat.output.extend(self.roots[slot : slot + 1].tolist())
        self._mark(Interval("prefill", (*others, seat), seat))

    def _mark(self, interval: Interval) -> None:
        """End an interval, which began where the last ended."""
        self.clock.mark()
        self.intervals.append(interval)

    def _mark_stage(self, stage: str) -> None:
        self._mark(Interval(stage, tuple(self.seats)))

    def _settle(self) -> None:
        """Wait for the device, and share out the time that has passed."""
        for interval, seconds in zip(self.intervals, self.clock.drain(), strict=True):
            interval.spend(seconds)
        self.intervals.clear()

    def _round(self) -> None:
        if self.speculation is not None and self.speculation.worth(self.cache.ends, self.past):
            self._tree_round(self.speculation, self.drafting, [seat.rounds for seat in self.seats])
        else:
            self._plain_round()
        for past, seat in zip(self.past, self.seats, strict=True):
            past.append(seat.rounds[-1])

    def _plain_round(self) -> None:
        """One token for each request."""
        target, cache = self.target, self.cache
        inputs = next_input(self.roots, cache.lengths, cache.length, target.dtype)
        passed = target.forward(inputs.tokens, inputs.positions, inputs.layout, cache)
        cache.commit([1] * len(self.seats))
        logits = target.logits(passed.hidden[:, -1]).split(1)
        drawn = [
            seat.request.sampler.sample(row, Places.at(end, target.device))
            for seat, row, end in zip(self.seats, logits, cache.ends, strict=True)
        ]
        self.roots = drawn[0] if len(drawn) == 1 else torch.cat(drawn)
        if self.drafting:
            self.drafting.extend_later(passed.features)
        for seat, token in zip(self.seats, self.roots.tolist(), strict=True):
            seat.output.extend([token])
            seat.rounds.append(PLAIN)
        self._mark_stage("verify")

    def _tree_round(self, speculation: Speculation, drafting: Drafting, histories: Histories) -> None:
        """Draft, build, verify, commit."""
        target, cache, depth = self.target, self.cache, speculation.drafter.config.num_proposals
        draft = drafting.draft(self.roots)
        self._mark_stage("draft")
        tree = speculation.build(draft, histories)
        self._mark_stage("build")
        inputs = verify_input(tree, self.roots, cache.lengths, cache.length, depth, target.dtype)
        passed = target.forward(inputs.tokens, inputs.positions, inputs.layout, cache)
        accepted = accept(tree, self._sample(target.logits(passed.hidden.flatten(0, 1)), tree, depth), depth)
        self._mark_stage("verify")
        cache.compact(accepted.rows, accepted.counts)
        told = _tell(accepted, tree)
        counts = [len(one.rows) for one in told]
        cache.commit(counts)
        self.roots = accepted.tokens.gather(1, accepted.counts.unsqueeze(1) - 1).squeeze(1)
        drafting.extend(_accepted_features(passed.features.flatten(0, 1), accepted.rows[:, : max(counts)], tree), counts)
        for seat, one in zip(self.seats, told, strict=True):
            committed = seat.output.extend(one.tokens)
            seat.rounds.append(Round(committed, one.probabilities, tuple(row - 1 for row in one.rows[1:])))
        self._mark_stage("commit")

    def _sample(self, logits: Tensor, tree: DraftTree, depth: int) -> Tensor:
        """What the target draws after each row: logits [rows that count, V] -> [R, N + 1], 0 after rows that do not count."""
        width, steps = tree.num_nodes + 1, ahead(tree)
        counts = [size + 1 for size in tree.sizes] if tree.sizes else [width] * len(self.seats)
        drawn = []
        for seat, part, step, end in zip(self.seats, logits.split(counts), steps, self.cache.ends, strict=True):
            tokens = seat.request.sampler.sample(part, Places(end + 1, step[: len(part)], depth + 1))
            drawn.append(F.pad(tokens, (0, width - len(part))))
        return torch.stack(drawn)


PLAIN = Round(committed=1, drafted=False)


def _accepted_features(features: Tensor, rows: Tensor, tree: DraftTree) -> Tensor:
    """Of features [rows that count, F] those of each request's `rows` [R, P], [R, P, F]; anything where a row does not count."""
    if tree.sizes is None:
        starts = torch.arange(len(rows), device=rows.device) * (tree.num_nodes + 1)
    else:
        starts = torch.tensor([0, *accumulate(size + 1 for size in tree.sizes[:-1])], device=rows.device)
    return features[(starts.unsqueeze(1) + rows).clamp_(max=len(features) - 1)]


@dataclass(frozen=True)
class Told:
    """What the host learns of a request's round: accepted rows, root first, the tokens after them, its nodes' probabilities."""

    rows: list[int]
    tokens: list[int]
    probabilities: tuple[float, ...]


def _tell(accepted: Accepted, tree: DraftTree) -> list[Told]:
    """A round's one read from the device: everything in rows of float64, which hold any token exactly."""
    counts = torch.stack((accepted.counts, tree.valid.sum(dim=1)), dim=1)
    parts = (counts, accepted.rows, accepted.tokens, tree.log_probs.exp())
    width, told = accepted.rows.shape[1], []
    for numbers in torch.cat([part.double() for part in parts], dim=1).tolist():
        count, nodes = (int(number) for number in numbers[:2])
        rows, tokens = ([int(number) for number in numbers[start : start + count]] for start in (2, 2 + width))
        told.append(Told(rows, tokens, tuple(numbers[2 + 2 * width :][:nodes])))
    return told
