"""How a job's work is cut over rented devices, and the step time that follows.

One type: the global batch divides evenly, or each device runs ceil(L / devices) of the L logical workers in turn.
Two types: batches in proportion to speed so that all finish together, or whole logical workers likewise. Each part is
timed as if every node of the mix were of its type, and the slowest decides: with one type, or with two equal ones,
that is the plain estimate. No public measurement mixes types (specification, 6), so there is nothing finer to fit.
"""

from dataclasses import dataclass, replace

import numpy as np

from springtide.cloud.plans import Work
from springtide.cloud.step_times import Speed
from springtide.throughput.model.forms import Estimate
from springtide.throughput.tables.points import Array, Columns


@dataclass(frozen=True)
class Cut:
    """Step times of some layouts (log seconds, spread) and the samples each device of each part takes per step.

    A layout that cannot train the job, for want of samples or logical workers for every device, has an infinite step.
    """

    log_step: Array
    spread: Array
    first_batch: Array
    second_batch: Array


def cut_alone(speed: Speed, nodes: Array, per_node: int, work: Work) -> Cut:
    """The work on nodes of one machine type."""
    devices = nodes * per_node
    each = np.full(len(nodes), float(per_node))
    if work.logical_workers is None:
        batch = np.ceil(work.global_batch / devices)
        estimate = speed.across(nodes, each, batch)
        log_step = np.where(devices <= work.global_batch, estimate.log_step, np.inf)
        return Cut(log_step, estimate.spread, batch, np.zeros(len(nodes)))
    turns = np.ceil(work.logical_workers / devices)
    batch = np.full(len(nodes), work.global_batch / work.logical_workers)
    estimate = speed.across(nodes, each, batch)
    log_step = np.log(estimate.step_s + (turns - 1) * speed.one_device_s(batch[:1]))
    log_step = np.where(devices <= work.logical_workers, log_step, np.inf)
    return Cut(log_step, estimate.spread, batch * turns, np.zeros(len(nodes)))


@dataclass(frozen=True)
class Pair:
    """Two machine types, by their speed and devices per node."""

    speeds: tuple[Speed, Speed]
    per_node: tuple[int, int]


def cut_mix(pair: Pair, first: Array, second: Array, work: Work, spread: bool = True) -> Cut:
    """The work on a mix of `first` and `second` nodes of two machine types; the spread is found only if asked for."""
    if work.logical_workers is None:
        cut, estimates = _cut_batches(pair, first, second, work)
    else:
        cut, estimates = _cut_workers(pair, first, second, work, work.logical_workers)
    # The less sure part: which of the two is slower is itself not sure.
    return replace(cut, spread=np.maximum(estimates[0].spread, estimates[1].spread)) if spread else cut


def _share_batches(pair: Pair, first: Array, second: Array, work: Work) -> tuple[Array, Array]:
    """b_i = (tau - a_i) / c_i with tau = (B + sum K_i a_i/c_i) / sum(K_i/c_i), rounded to whole samples."""
    counts = first * pair.per_node[0], second * pair.per_node[1]
    lines = [speed.affine_line(work.global_batch) for speed in pair.speeds]
    weight = sum(count / slope for count, (_, slope) in zip(counts, lines, strict=True))
    offset = sum(count * fixed / slope for count, (fixed, slope) in zip(counts, lines, strict=True))
    together_s = (work.global_batch + offset) / weight
    ideal = (together_s - lines[0][0]) / lines[0][1]
    batch = np.clip(np.round(ideal), 1, np.maximum(np.floor((work.global_batch - counts[1]) / counts[0]), 1))
    return batch, np.maximum(np.ceil((work.global_batch - batch * counts[0]) / counts[1]), 1)


def _cut_batches(pair: Pair, first: Array, second: Array, work: Work) -> tuple[Cut, list[Estimate]]:
    """The batch in proportion to speed; more devices than samples cannot train."""
    batch, rest = _share_batches(pair, first, second, work)
    estimates = _time_parts(pair, first, second, (batch, rest))
    slower = np.maximum(estimates[0].log_step, estimates[1].log_step)
    devices = first * pair.per_node[0] + second * pair.per_node[1]
    log_step = np.where(devices <= work.global_batch, slower, np.inf)
    return Cut(log_step, np.zeros(len(first)), batch, rest), estimates


def _cut_workers(pair: Pair, first: Array, second: Array, work: Work, workers: int) -> tuple[Cut, list[Estimate]]:
    """Whole logical workers in proportion to speed: the better of rounding down and up."""
    counts = first * pair.per_node[0], second * pair.per_node[1]
    batch = np.full(len(first), work.global_batch / workers)
    turn_s = [speed.one_device_s(batch[:1]) for speed in pair.speeds]  # the same for all layouts
    ideal = workers / turn_s[0] / (counts[0] / turn_s[0] + counts[1] / turn_s[1])
    estimates = _time_parts(pair, first, second, (batch, batch))
    cuts = []
    for turns in (np.maximum(np.floor(ideal), 1), np.maximum(np.ceil(ideal), 1)):
        rest = np.ceil((workers - turns * counts[0]) / counts[1])
        steps = [part.step_s + (n - 1) * s for part, n, s in zip(estimates, (turns, rest), turn_s, strict=True)]
        log_step = np.where(rest >= 1, np.log(np.maximum(*steps)), np.inf)
        cuts.append(Cut(log_step, np.zeros(len(first)), batch * turns, batch * rest))
    down, up = cuts
    better = up.log_step < down.log_step
    names = ("log_step", "spread", "first_batch", "second_batch")
    return Cut(*(np.where(better, getattr(up, name), getattr(down, name)) for name in names)), estimates


def _time_parts(pair: Pair, first: Array, second: Array, batches: tuple[Array, Array]) -> list[Estimate]:
    """The estimates of both parts, each as if the whole mix were of its type."""
    nodes = first + second
    devices = first * pair.per_node[0] + second * pair.per_node[1]
    return [
        speed.estimate(Columns(nodes, devices, np.full(len(nodes), float(each)), batch))
        for speed, each, batch in zip(pair.speeds, pair.per_node, batches, strict=True)
    ]
