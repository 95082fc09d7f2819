"""The mesh that sharded tensors lie on: the processes of one generation, without torch's default group.

Its process group does what has the same bits on any number of processes: it gathers. Sums over shards depend on how
many shards there are, so they are refused, whoever asks for one: a norm of the gradients, a mean of a parameter.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from springtide.errors import JobError
from springtide.training.group.groups import Group, PendingWork

_numbers = itertools.count()


class MeshWork(dist._Work):
    """A collective as torch's sharded tensors wait for it; None: one that has ended when it is started."""

    def __init__(self, pending: PendingWork | None) -> None:
        super().__init__()
        self.pending = pending

    def wait(self, timeout: Any = None) -> bool:
        """Wait until it is done; a peer that has gone is blamed."""
        if self.pending is not None:
            self.pending.wait()
        return True


class MeshGroup(dist.ProcessGroup):
    """The processes of a mesh as torch's sharded tensors see them."""

    def __init__(self, group: Group | None, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # the stub lacks this form
        self.group = group

    def getBackendName(self) -> str:
        """A name for errors of torch's."""
        return "springtide"

    def collect(self, output: torch.Tensor, source: torch.Tensor) -> Any:
        """Everyone's source in the output, in rank order."""
        if self.group is None:
            output.view(-1).copy_(source.reshape(-1))
            return MeshWork(None)
        return MeshWork(self.group.gather_into(output, source))

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], options: Any = None
    ) -> Any:
        """What `full_tensor()` asks for."""
        works = [self.collect(output, source) for output, source in zip(outputs, sources, strict=True)]
        for work in works[:-1]:
            work.wait()
        return works[-1]

    def allreduce(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse a sum over shards."""
        refuse_sum()

    def reduce_scatter(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse a sum over shards."""
        refuse_sum()


def refuse_sum() -> NoReturn:
    """Refuse what would have other bits on another number of processes."""
    raise JobError(
        "a norm, a sum or a mean over a sharded tensor adds one part per process, so its bits depend on how many there "
        "are; clip with run.clip_grad_norm_(model.parameters(), 1.0), and take other values from tensor.full_tensor()"
    )


def make_mesh(group: Group | None, rank: int, device_type: str) -> DeviceMesh:
    """A mesh of one dimension over a group, or over this process alone."""
    size = 1 if group is None else group.size
    name: Any = f"springtide-mesh-{next(_numbers)}"
    members = MeshGroup(group, rank, size)
    distributed_c10d._register_process_group(name, members)
    mesh = DeviceMesh(device_type, list(range(size)), _init_backend=False, _rank=rank)
    mesh._dim_group_names = [name]
    mesh._pg_registry[name] = members
    return mesh


def close_mesh(mesh: DeviceMesh) -> None:
    """Let torch forget a mesh's group."""
    for name in mesh._dim_group_names:
        distributed_c10d._unregister_process_group(name)
