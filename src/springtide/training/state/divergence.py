"""A guard against what nothing else can see: processes whose states are no longer the same.

After a first step, every so often and at each checkpoint all processes compare a number per tensor and per piece of
plain state. How often is up to rank 0, which spends at most one part in PARTS of its time on it.
"""

import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from springtide.errors import NondeterminismError
from springtide.training.state import state_tree
from springtide.training.state.digests import is_sharded, name_tensors
from springtide.training.workers import randomness

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

PARTS = 300
#: Integers of the same size, to read any tensor's bits as numbers.
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
WIDEST = 8
CAUSES = {
    "parameter": "weights that are written to by lines that do not run alike on every process",
    "buffer": "a buffer that is written to by lines that do not run alike on every process",
    "optimizer": "a learning rate or a step that depends on a value of one process: use run.mean(...), step.number",
    "scheduler": "a schedule that follows a value of one process, such as a loss of its own: use run.mean(...)",
    "random": "a random number that is drawn on some processes only, as under `if run.is_main:`",
    "run.state": "a value of one process in run.state: use run.mean(...), step.number or run.shard(...)",
    "items": "a dataset that shuffles by the clock or splits by rank: it must give every process all items",
    "module": "a model that is set to train() or eval(), or frozen, by lines that do not run alike on every process",
    "order": "a sampler that draws by the clock, by the process or by a value of one process: see run.mean, run.shard",
    "kept": "an object of run.keep that is not updated alike on every process",
}


class DivergenceGuard:
    """When to compare."""

    def __init__(self) -> None:
        self.due_s = 0.0

    def is_due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self.due_s

    def compare(self, run: "ElasticRun") -> None:
        """Compare the states of all processes, and stop the run if they differ."""
        assert run.group is not None
        began_s = time.monotonic()
        state = dict(number_state(run))
        place = find_difference(run, list(state), line_up(state.values(), run.device))
        self.due_s = time.monotonic() + PARTS * (time.monotonic() - began_s)
        if place is not None:
            refuse(run, place, gather_lost(run))


def number_state(run: "ElasticRun", but: tuple[str, ...] = ()) -> Iterator[tuple[str, int | torch.Tensor]]:
    """A number per tensor and per piece of plain state, under a name; without some kinds."""
    for name, tensor in name_tensors(run.models, run.optimizers):
        if not is_sharded(tensor) and not name.startswith(but):
            yield name, number_tensor(tensor)
    for number, optimizer in enumerate(run.optimizers):
        groups = [{key: one for key, one in group.items() if key != "params"} for group in optimizer.param_groups]
        yield f"optimizer {number} options", number_plain(groups)
    for number, one in enumerate((*run.schedulers, *run.scalers)):
        yield f"scheduler {number} ({type(one).__name__})", number_plain(one.state_dict())
    for name, one in sorted(run.kept.items()):
        yield f"kept {name}", number_plain(one.state_dict())
    yield "run.state", number_plain(run.state)
    if "items" not in but and run.loader.stream is not None and run.loader.stream.opening is not None:
        yield "items of the iterable dataset", run.loader.stream.opening[1]
    if "module" not in but:
        yield "module modes", number_plain([list_modes(model) for model in run.models])
    if "order" not in but:
        yield "order of the samples", run.loader.plans.number
    if "random" not in but:
        yield "random state between turns", number_plain(randomness.to_plain(randomness.capture()))


def list_modes(model: torch.nn.Module) -> list[bool]:
    """Whether each module trains, and each parameter requires a gradient."""
    return [*(one.training for one in model.modules()), *(one.requires_grad for one in model.parameters())]


def line_up(numbers: Iterable[int | torch.Tensor], device: torch.device) -> torch.Tensor:
    """Numbers as one tensor, so that a device is waited for once and not for each of them."""
    return torch.stack([torch.as_tensor(number, device=device) for number in numbers])


def number_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of a tensor's bits, read as integers; a number of what is in it, wherever that lies."""
    flat = tensor.detach().contiguous().reshape(-1)
    size = flat.element_size()
    if flat.numel() * size % WIDEST:
        return flat.view(WORDS[size]).sum(dtype=torch.int64)
    # Eight bytes at a time are faster. Where they begin off their bounds, as in a slice, a copy begins on one.
    if flat.storage_offset() * size % WIDEST or flat.data_ptr() % WIDEST:
        flat = flat.clone()
    return flat.view(torch.int64).sum()


def number_plain(value: Any) -> int:
    """A checksum of plain values and the tensors among them; what is neither has a say by its text."""
    text, tensors = state_tree.take_apart(simplify(value))
    total = zlib.crc32(text.encode()) + sum(int(number_tensor(tensor)) for tensor in tensors.values())
    return (total + 2**63) % 2**64 - 2**63  # as a sum of int64 wraps


def simplify(value: Any) -> Any:
    """A value with everything that is no plain state left out: functions and objects of schedulers."""
    if isinstance(value, dict):
        return {str(key): simplify(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [simplify(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str | torch.Tensor) else None


def find_difference(run: "ElasticRun", names: list[str], numbers: torch.Tensor) -> str | None:
    """The first name under which some process has another number than rank 0, known to all of them."""
    group = run.group
    assert group is not None
    counts = torch.zeros(group.size, dtype=torch.int64, device=run.device)
    counts[group.rank] = zlib.crc32("\0".join(names).encode())
    group.all_reduce(counts).wait()
    if len(set(counts.tolist())) > 1:
        return "optimizer state: some processes have tensors that others have not"
    theirs = numbers.clone()
    group.broadcast(theirs, 0).wait()
    places = (theirs != numbers).nonzero().reshape(-1).tolist()
    firsts = torch.zeros(group.size, dtype=torch.int64, device=run.device)
    firsts[group.rank] = places[0] + 1 if places else 0
    group.all_reduce(firsts).wait()
    found = [place for place in firsts.tolist() if place]
    return names[min(found) - 1] if found else None


def gather_lost(run: "ElasticRun") -> list[str]:
    """What any process has lost of the script's own values, by which its lines may go apart."""
    group = run.group
    assert group is not None
    phrases = [phrase for rank in range(group.size) for phrase in group.share(run.lost, rank, run.device)]
    return list(dict.fromkeys(phrases))


def refuse(run: "ElasticRun", name: str, lost: Sequence[str]) -> None:
    """End the run: the first process says why, the others wait to be ended."""
    if not run.is_main and run.peers is not None:
        time.sleep(run.settings.collective_timeout_s)
    cause = next(text for kind, text in CAUSES.items() if name.startswith(kind))
    here = f". Here the script has lost what it counted ({', '.join(lost)}): keep it in run.state" if lost else ""
    raise NondeterminismError(
        f"after step {run.position.step} the processes differ, first in {name}; what runs outside `for ... in step:` "
        f"must be the same on every process. The usual cause: {cause}{here}"
    )
