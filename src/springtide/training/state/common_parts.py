"""What every process must have prepared alike: data, weights by name and shape, optimizers, options.

Compared when a group opens, before anything is exchanged over it: a script that splits its data by a rank, or builds
another model there, would otherwise train on what no rank of DDP has.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from springtide.errors import JobError
from springtide.training.determinism import levels
from springtide.training.parts import title_models
from springtide.training.state.digests import digest
from springtide.training.state.run_state import name_weights
from springtide.training.workers.sampling import SampleKey

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

#: Each part's description by its name, in an order in which one depends on those before it.
PartFacts = dict[str, str]

#: What of a process's host decides bits, with what to do where it is not the same everywhere.
REMEDIES = {
    "torch": "Install one version on all hosts of the job, or give up the same bits with determinism: D0",
    "kernels": "Level D1 has the same bits on devices of one kind: use such, ask for the same bits on all kinds with "
    "determinism: D2, or give them up with determinism: D0",
}


def describe_parts(run: "ElasticRun") -> PartFacts:
    """What `prepare` was given, and where, as far as it must be the same everywhere."""
    facts = describe_host(run)
    facts |= {f"weight {name}": describe_value(one) for name, one in name_weights(run.models).items()}
    for number, optimizer in enumerate(run.optimizers):
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        facts[f"optimizer {number}"] = f"{type(optimizer).__name__} of {sizes} parameters"
        facts |= {f"{key} of optimizer {number}": text for key, text in describe_options(optimizer)}
    facts["data order"] = str(run.loader.sampling)
    if run.loader.feed.num_workers == 0 and not isinstance(run.loader.feed.dataset, IterableDataset):
        # Where DataLoader workers read it, a dataset may not be fit to be read here: it may open its files there.
        facts["first sample"] = " ".join(digest_sample(run.loader.data[SampleKey(0, 0)]))
    return facts


def describe_host(run: "ElasticRun") -> PartFacts:
    """What decides the bits of the same lines here; at D0 nothing is promised on several hosts, so nothing is asked."""
    facts = {"torch": torch.__version__, "kernels": levels.name_kernels(run.level, run.device)}
    return {} if run.level == "D0" else {name: text for name, text in facts.items() if text}


def describe_options(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str]]:
    """Rates and other options as they are in `prepare`, each of all groups: once where these have the same."""
    groups = optimizer.param_groups
    for key in sorted({str(key) for group in groups for key in group} - {"params"}):
        values = [" ".join(digest_sample(group.get(key))) for group in groups]
        yield key, values[0] if len(set(values)) == 1 else ", ".join(values)


def describe_value(tensor: torch.Tensor) -> str:
    """A tensor's type and shape."""
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def digest_sample(value: Any) -> Iterator[str]:
    """A sample in words that are the same for the same sample, as far as it is made of tensors and plain values."""
    if isinstance(value, torch.Tensor):
        yield digest(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from digest_sample(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from digest_sample(item)
    else:
        yield str(value) if isinstance(value, bool | int | float | str) else type(value).__name__


def check_parts_alike(run: "ElasticRun") -> None:
    """Refuse this process if it has other parts than rank 0, or computes otherwise."""
    assert run.group is not None
    mine = run.part_facts
    theirs: PartFacts = run.group.share(mine, 0, run.device)
    for name in (*theirs, *mine):
        if theirs.get(name) != mine.get(name):
            if name in REMEDIES:
                raise JobError(
                    f"process {run.name} computes with {name} {mine.get(name)}, the first process with "
                    f"{theirs.get(name)}, and the bits of one are not those of the other. {REMEDIES[name]}"
                )
            raise JobError(
                f"what process {run.name} gave to run.prepare differs from what the first process gave, first in {name}"
                f": {mine.get(name, 'none')} here, {theirs.get(name, 'none')} there. Every process must prepare the "
                "same models, optimizers and data, all of them: run.prepare gives each logical worker its share, so "
                "split nothing by a rank or a process, and take no rate from their number"
            )


def check_parts_kept(run: "ElasticRun") -> None:
    """Refuse models with other parameters than those of `prepare`: nobody would reduce, train or save them."""
    if run.sharding is not None:  # which replaces them itself, at every change of processes
        return
    given = {id(parameter) for parameter in run.turns.known}
    for title, model in title_models(run.models):
        for name, parameter in model.named_parameters():
            there, here = run.part_facts.get(f"weight {title}{name}"), describe_value(parameter)
            if there is not None and there == here and id(parameter) in given:
                continue
            raise JobError(
                f"parameter {title}{name} {tell_change(there, here)}; replace or prune layers, convert a model and "
                "load weights with assign=True before run.prepare, which tells every logical worker what there is to "
                "train"
            )


def tell_change(there: str | None, here: str) -> str:
    """How a parameter of now differs from that of `prepare`."""
    if there is None:
        return f"({here}) did not exist in run.prepare"
    if there != here:
        return f"was {there} in run.prepare and is {here} now"
    return "is another tensor than in run.prepare"
