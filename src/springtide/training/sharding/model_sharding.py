"""The sharded model of a run: how a script shards it, and how its shards change hands when the processes do.

A process makes the model whole, alone on a mesh of its own; where it takes its place among others it keeps its rows. At
a rescale each tensor is gathered in turn and everyone keeps the rows that will be its own, so no more than one tensor
is whole at a time. The parameters stay the same objects.
"""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from springtide.errors import CheckpointError, JobError
from springtide.training.group.groups import Group, broadcast_tensor
from springtide.training.sharding.meshes import close_mesh, make_mesh
from springtide.training.sharding.sharded_parameters import (
    ShardedGroup,
    ShardedParameter,
    check_version,
    cut_rows,
    find_groups,
)

#: What torch's `fully_shard` has and this one has not, and why.
REFUSED = {
    "mesh": "the mesh is all processes of the run, of which there may be any number",
    "mp_policy": "parameters and sums keep their type; for bfloat16 use torch.autocast in the loop",
    "offload_policy": "shards stay on the device of the model",
    "shard_placement_fn": "shards are rows, so that any number of processes can share them",
    "ignored_params": "every parameter is sharded or none",
    "dp_mesh_dims": "there is one dimension: the processes of the run",
    "reshard_after_forward": "parameters are whole only while a module uses them; leave it out, or pass True",
}


class ModelSharding:
    """What was sharded, and on which mesh it is."""

    def __init__(self) -> None:
        self.mesh: DeviceMesh | None = None
        self.modules: list[torch.nn.Module] = []
        self.groups: list[ShardedGroup] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.rank = 0
        #: Rows for a mesh that is to come, if they were cut while the one before was there.
        self.pending: list[torch.Tensor] | None = None

    def add(self, module: torch.nn.Module, options: dict[str, Any]) -> torch.nn.Module:
        """Shard a module, alone on this process for now."""
        check_version()
        for name, value in options.items():
            if name not in REFUSED:
                raise JobError(f"run.fully_shard has no option {name!r}; torch's fully_shard has none either")
            if not (name == "reshard_after_forward" and value in (None, True)):
                raise JobError(f"run.fully_shard(..., {name}=...) is not for elastic runs: {REFUSED[name]}")
        if not isinstance(module, torch.nn.Module):
            raise JobError(f"run.fully_shard was given a {type(module).__name__}; give one module per call")
        if self.mesh is None:
            first = next(module.parameters(), None)
            self.mesh = make_mesh(None, 0, "cpu" if first is None else first.device.type)
        fully_shard(module, mesh=self.mesh, reshard_after_forward=True)
        self.modules.append(module)
        return module

    def adopt(self, models: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
        """Know the run's parts, once `prepare` has them."""
        (model,) = models if len(models) == 1 else refuse_several()
        self.groups = find_groups(model)
        self.optimizers = optimizers
        plain = [name for name, one in model.named_parameters() if not isinstance(one, DTensor)]
        if plain:
            raise JobError(
                f"parameter {plain[0]} is not sharded and others are; after its parts, shard the whole model too: "
                "run.fully_shard(model)"
            )
        cast(FSDPModule, model).set_requires_gradient_sync(False)  # gradients are exchanged by `sharded_gradients`

    @property
    def parameters(self) -> list[ShardedParameter]:
        """All sharded parameters."""
        return [one for group in self.groups for one in group.parameters]

    # Shards change hands.

    def list_shards(self) -> Iterator[tuple[DTensor, Callable[[torch.Tensor], None]]]:
        """Every sharded tensor of the optimizers, and how new rows of it are put in its place."""
        known = {id(one.parameter): one for one in self.parameters}
        for optimizer in self.optimizers:
            for parameter, state in optimizer.state.items():
                for key, value in state.items():
                    if isinstance(value, DTensor):
                        yield value, put_state(state, key, known[id(parameter)])

    def cut(self, rank: int | None, size: int, group: Group | None = None) -> None:
        """Cut everything anew while the present mesh is there: all its processes take part, also those that leave.

        With a group, what the first of its processes has counts, as where a model is built.
        """
        tensors: list[Any] = [one.parameter for one in self.parameters]
        tensors += [tensor for tensor, _ in self.list_shards()]
        self.pending = []
        for tensor in tensors:
            whole = tensor.detach().full_tensor()
            if group is not None:
                broadcast_tensor(group, whole)
            if rank is not None:
                self.pending.append(whole[cut_rows(whole.shape, size).find_rows(rank)].clone())

    def place(self, group: Group | None, rank: int) -> None:
        """Lie on the mesh of a group, with the rows that were cut for it."""
        assert self.mesh is not None and self.pending is not None
        rows, self.pending = self.pending, None
        states = [put for _, put in self.list_shards()]
        close_mesh(self.mesh)
        self.mesh, self.rank = make_mesh(group, rank, self.mesh.device_type), rank
        for one in self.groups:
            one.install(rows[: len(one.parameters)], self.mesh)
            del rows[: len(one.parameters)]
        for put, local in zip(states, rows, strict=True):
            put(local)
        for sharded in self.parameters:
            sharded.parameter.grad = None

    # State.

    def make_whole(self, state: dict[str, Any], keep: bool) -> dict[str, Any]:
        """A captured state with whole tensors; all processes take part, and only those that keep it have it."""
        parts = {part: gather_tensors(state[part], keep) for part in ("model", "optimizers")}
        return {**state, **parts}

    def load_weight(self, tensor: torch.Tensor, whole: torch.Tensor) -> None:
        """Take over a weight: this process's rows of it, if it is sharded."""
        if isinstance(tensor, DTensor):
            tensor._local_tensor.copy_(self.take_rows(whole))
        else:
            tensor.copy_(whole)

    def take_rows(self, whole: torch.Tensor) -> torch.Tensor:
        """This process's rows of a whole tensor."""
        assert self.mesh is not None
        return whole[cut_rows(whole.shape, self.mesh.size()).find_rows(self.rank)]

    def cut_state(self, optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
        """An optimizer's saved state with this process's rows in place of what is as large as a parameter."""
        known = {id(one.parameter): one for one in self.parameters}
        trained = [known[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
        states = {}
        for place, state in saved["state"].items():
            if int(place) >= len(trained):
                raise CheckpointError(f"the saved optimizer has a state for parameter {place}; this run has fewer")
            one = trained[int(place)]
            states[place] = {key: self.cut_value(one, value) for key, value in state.items()}
        return {**saved, "state": states}

    def cut_value(self, one: ShardedParameter, value: Any) -> Any:
        """A piece of an optimizer's state."""
        if isinstance(value, torch.Tensor) and value.ndim and value.shape == one.parameter.shape:
            return one.wrap(self.take_rows(value).clone())
        return value

    def clip(self, parameters: list[torch.Tensor], max_norm: float, norm_type: float) -> torch.Tensor:
        """What torch's `clip_grad_norm_` does to whole gradients, with its bits: one is whole at a time."""
        grads: list[Any] = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not grads:
            return torch.tensor(0.0)
        norms = [torch.linalg.vector_norm(grad.full_tensor(), norm_type) for grad in grads]
        total: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms), norm_type)
        factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
        for grad in grads:
            grad._local_tensor.mul_(factor)
        return total


def put_state(state: dict[str, Any], key: str, one: ShardedParameter) -> Callable[[torch.Tensor], None]:
    """How new rows of a piece of an optimizer's state are put in its place."""
    if state[key].shape != one.parameter.shape or state[key].placements != one.parameter.placements:  # type: ignore[attr-defined]
        raise JobError(
            f"the optimizer's {key} of {one.name} is not cut as the parameter is, so it cannot be cut anew for other "
            "processes; use an optimizer that treats elements one by one, as Adam and SGD do"
        )

    def put(local: torch.Tensor) -> None:
        state[key] = one.wrap(local)

    return put


def gather_tensors(value: Any, keep: bool) -> Any:
    """A part of a state with whole tensors."""
    if isinstance(value, DTensor):
        whole = value.full_tensor()
        return whole if keep else None
    if isinstance(value, dict):
        return {key: gather_tensors(item, keep) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(gather_tensors(item, keep) for item in value)
    return value


def refuse_several() -> NoReturn:
    """Refuse several models of which some are sharded."""
    raise JobError("run.prepare was given several models and run.fully_shard was used; a sharded run has one model")
