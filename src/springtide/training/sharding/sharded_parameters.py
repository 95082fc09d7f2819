"""A parameter of torch's `fully_shard`, cut along its first dimension, and how it is cut anew for other processes.

All that is used of torch beyond its public names is in this file and in `meshes`; `TRIED` says in which versions.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from springtide.errors import JobError

#: Releases of torch whose sharded parameters are as this file expects.
TRIED = ("2.13.",)


def check_version() -> None:
    """Refuse a torch that was never tried."""
    if not torch.__version__.startswith(TRIED):
        tried = ", ".join(f"{release}x" for release in TRIED)
        raise JobError(f"run.fully_shard was tried with torch {tried} only, and this is {torch.__version__}; use that")


@dataclass(frozen=True, slots=True)
class RowCut:
    """How the rows of a tensor are shared out: as `torch.chunk` does, so the last processes may have fewer or none."""

    rows: int
    #: Elements of a row.
    width: int
    size: int

    @property
    def most(self) -> int:
        """Rows of the largest part."""
        return -(-self.rows // self.size)

    def find_rows(self, rank: int) -> slice:
        """The rows of a process."""
        return slice(min(self.rows, rank * self.most), min(self.rows, (rank + 1) * self.most))

    def count(self, rank: int) -> int:
        """The elements of a process."""
        rows = self.find_rows(rank)
        return self.width * len(range(rows.start, rows.stop))


def cut_rows(shape: torch.Size, size: int) -> RowCut:
    """The cut of a tensor of this shape for so many processes."""
    return RowCut(shape[0], shape[1:].numel(), size)


class ShardedParameter:
    """One parameter, on whatever mesh it is."""

    def __init__(self, inner: Any, name: str) -> None:
        self.inner = inner
        self.name = name

    @property
    def parameter(self) -> torch.nn.Parameter:
        """The parameter that the script and the optimizer know: a DTensor, the same object for the run's life."""
        found: torch.nn.Parameter = self.inner.sharded_param
        return found

    @property
    def local(self) -> torch.Tensor:
        """This process's rows."""
        return self.inner.sharded_param._local_tensor  # type: ignore[no-any-return]

    @property
    def padded(self) -> torch.Tensor:
        """This process's rows as they are gathered: as many on every process."""
        return self.inner._sharded_param_data  # type: ignore[no-any-return]

    @property
    def unsharded(self) -> torch.nn.Parameter | None:
        """The whole parameter that a forward uses, once there is one."""
        return getattr(self.inner, "_unsharded_param", None)

    def wrap(self, local: torch.Tensor) -> DTensor:
        """A tensor that is cut as this parameter is, of which this process has these rows."""
        return self.inner.to_sharded_dtensor(local)  # type: ignore[no-any-return]

    def install(self, local: torch.Tensor, mesh_info: FSDPMeshInfo) -> None:
        """Lie on another mesh, with these rows here."""
        inner, parameter = self.inner, self.inner.sharded_param
        cut = cut_rows(parameter.shape, mesh_info.shard_mesh_size)
        padded = local.new_zeros((cut.most, *parameter.shape[1:]))
        padded[: local.shape[0]].copy_(local)
        inner.mesh_info = inner.post_forward_mesh_info = mesh_info
        inner._shard_mesh = mesh_info.mesh
        inner.sharded_size = local.shape
        inner.contiguous_sharded_stride = local.contiguous().stride()
        inner.padded_sharded_param_size = padded.shape
        inner._sharded_param_data = padded.view(-1)
        spec = parameter._spec
        parameter._local_tensor = padded[: local.shape[0]]
        parameter._spec = DTensorSpec(mesh_info.mesh, spec.placements, tensor_meta=spec.tensor_meta)
        inner._sharding_spec = parameter._spec
        inner._init_sharded_post_forward_param_metadata(torch.empty(parameter.shape, device="meta"))
        # What a forward has gathered was made for the mesh before.
        inner.all_gather_outputs = []
        if hasattr(inner, "_unsharded_param"):
            del inner._unsharded_param


@dataclass(frozen=True, slots=True)
class ShardedGroup:
    """The parameters that one call of `fully_shard` gathers together."""

    module: FSDPModule
    inner: Any
    parameters: tuple[ShardedParameter, ...]

    def install(self, locals_: list[torch.Tensor], mesh: DeviceMesh) -> None:
        """Lie on another mesh."""
        mesh_info = FSDPMeshInfo(mesh, shard_mesh_dim=0)
        self.inner.mesh_info = self.inner.post_forward_mesh_info = mesh_info
        for one, local in zip(self.parameters, locals_, strict=True):
            one.install(local, mesh_info)


def find_groups(model: torch.nn.Module) -> list[ShardedGroup]:
    """The groups of a model, in the order of its modules."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        ShardedGroup(
            module, inner, tuple(ShardedParameter(one, names[id(one.sharded_param)]) for one in inner.fsdp_params)
        )
        for module in model.modules()
        if isinstance(module, FSDPModule)
        for inner in module._get_fsdp_state()._fsdp_param_groups
    ]
