"""State sent from process to process over a group: a tree's shape first, then its tensors as one run of bytes.

No disk is touched, and nothing that arrives is executed. When state is sent is in `rescale` and `checkpointing`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from springtide.training.group.groups import Group
from springtide.training.state import state_tree

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


def share_contexts(run: "ElasticRun") -> dict[int, dict[str, Any]]:
    """The contexts of all logical workers, on every process of the present group."""
    mine = run.contexts.to_plain(run.local)
    if run.group is None:
        return mine
    merged: dict[int, dict[str, Any]] = {}
    for theirs in share_trees(run.group, mine, run.device):
        merged.update(theirs)
    return dict(sorted(merged.items()))


def share_trees(group: Group, tree: Any, device: torch.device) -> list[Any]:
    """Everyone's tree, by rank."""
    return [send_tree(group, tree, root, device) for root in range(group.size)]


def send_tree(group: Group, tree: Any, root: int, device: torch.device) -> Any:
    """Root's tree on every process of the group: its shape first, then its tensors as one run of bytes."""
    if group.rank == root:
        text, tensors = state_tree.take_apart(tree)
        form = {path: (str(tensor.dtype), list(tensor.shape)) for path, tensor in tensors.items()}
        group.share([text, form], root, device)
        flat = pack(list(tensors.values()), device)
        group.broadcast(flat, root).wait()
        return tree
    text, form = group.share(None, root, device)
    places = {path: torch.empty(shape, dtype=getattr(torch, dtype[6:])) for path, (dtype, shape) in form.items()}
    flat = torch.empty(sum(count_bytes(place) for place in places.values()), dtype=torch.uint8, device=device)
    group.broadcast(flat, root).wait()
    unpack(flat.cpu(), list(places.values()))
    return state_tree.put_together(text, places)


def count_bytes(tensor: torch.Tensor) -> int:
    """A tensor's size."""
    return tensor.numel() * tensor.element_size()


def pack(tensors: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """All tensors' bytes, back to back."""
    parts = [tensor.detach().contiguous().reshape(-1).view(torch.uint8).to(device) for tensor in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=device)


def unpack(flat: torch.Tensor, places: Sequence[torch.Tensor]) -> None:
    """Copy packed bytes to where they belong."""
    offset = 0
    for place in places:
        size = count_bytes(place)
        place.reshape(-1).view(torch.uint8).copy_(flat[offset : offset + size])
        offset += size
