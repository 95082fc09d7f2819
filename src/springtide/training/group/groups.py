"""Process groups, one per generation, over one store that outlives them all.

A group is built straight on torch's backend classes, beside `torch.distributed`'s default group and not in its way:
the old and the new generation can be open at once. Measured: a fresh prefix on a living TCPStore opens in 1-9 ms for
1-4 processes, a fresh tcp:// rendezvous in up to 5 s. State travels as a tree: its shape first, then its tensors as one
run of bytes; nothing that arrives is executed.
"""

import atexit
import contextlib
import functools
import json
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from springtide.errors import PeerLostError
from springtide.training.state import state_tree


@contextlib.contextmanager
def blame_peers(what: str) -> Iterator[None]:
    """Say of what torch cannot do with the others that one of them is gone."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLostError(
            f"{what} failed, so another process of this run is gone ({shorten(error)}); "
            "the supervisor starts the job again from its last checkpoint"
        ) from error


def shorten(error: BaseException) -> str:
    """The first line of an error."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class JobStore(dist.TCPStore):
    """The store of a run; a call that fails means that whoever serves it is gone."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""
        with blame_peers(f"writing {key!r} to the store"):
            super().set(key, value)

    def get(self, key: str) -> bytes:
        """A value, as soon as it is there."""
        with blame_peers(f"reading {key!r} from the store"):
            return super().get(key)

    def add(self, key: str, number: int) -> int:
        """Add to a count; the new count."""
        with blame_peers(f"counting {key!r} in the store"):
            return super().add(key, number)

    def check(self, keys: list[str]) -> bool:
        """Whether all of these are written."""
        with blame_peers("asking the store"):
            return super().check(keys)


def connect_store(address: str, timeout_s: float) -> dist.Store:
    """The job's store, as a client of `host:port`."""
    host, _, port = address.rpartition(":")
    with blame_peers(f"the store {address} could not be reached, which"):
        return JobStore(host, int(port), is_master=False, timeout=timedelta(seconds=timeout_s))


def host_store(timeout_s: float = 60.0, address: str = "127.0.0.1") -> tuple[dist.TCPStore, str]:
    """A new store served by this process at an address of its host, and where."""
    listener = socket.create_server((address, 0), backlog=1024)
    port = listener.getsockname()[1]
    timeout = timedelta(seconds=timeout_s)
    # torch would listen on every network of the host; it is given a socket that does not
    store = dist.TCPStore(
        address, port, is_master=True, wait_for_workers=False, timeout=timeout, master_listen_fd=listener.detach()
    )
    return store, f"{address}:{port}"


#: A backend is destroyed only some rescales after its last use. Its destructor joins its threads while it holds the
#: interpreter lock; a thread that still lets go of a tensor then wants that lock, and both wait for ever.
_retired: deque[Any] = deque(maxlen=4)


EXIT_S = 0.2


@functools.cache
def delay_exit() -> None:
    """Give the backend's threads a moment before the interpreter ends, once per process.

    After the last collective such a thread may still let go of a tensor. If the interpreter is ending by then, the
    thread is unwound inside C++ code and the process aborts ("terminate called without an active exception").
    """
    atexit.register(wait_for_threads)


def wait_for_threads() -> None:
    """Let the backend's threads come to rest."""
    time.sleep(EXIT_S)


class PendingWork:
    """A collective under way."""

    __slots__ = ("work",)

    def __init__(self, work: Any) -> None:
        self.work = work

    def wait(self) -> None:
        """Wait until it is done; this process's part was right, so an error is a peer's that has gone."""
        with blame_peers("a collective"):
            self.work.wait()


class Group:
    """The processes of one generation, able to talk. Every call must be made by all of them in the same order."""

    def __init__(self, backend: Any, rank: int, size: int, name: str) -> None:
        self.backend = backend
        self.rank = rank
        self.size = size
        self.name = name

    def all_reduce(self, tensor: torch.Tensor) -> PendingWork:
        """Start adding a tensor over all processes, in place and in the backend's own order."""
        with blame_peers("a collective"):
            return PendingWork(self.backend.allreduce([tensor]))

    def broadcast(self, tensor: torch.Tensor, root: int) -> PendingWork:
        """Start copying root's tensor into everyone's."""
        with blame_peers("a collective"):
            return PendingWork(self.backend.broadcast(tensor, root))

    def gather_into(self, output: torch.Tensor, source: torch.Tensor) -> PendingWork:
        """Start collecting everyone's source, all of one size, in the output in rank order."""
        with blame_peers("a collective"):
            return PendingWork(self.backend._allgather_base(output, source))

    def scatter_parts(
        self, output: torch.Tensor, sizes_in: list[int], source: torch.Tensor, sizes_out: list[int]
    ) -> PendingWork:
        """Start sending consecutive parts of `source` to the processes in turn, and receiving theirs into `output`."""
        with blame_peers("a collective"):
            return PendingWork(self.backend.alltoall_base(output, source, sizes_in, sizes_out, dist.AllToAllOptions()))

    def share(self, value: Any, root: int, device: torch.device) -> Any:
        """Root's value on every process: whatever JSON can hold."""
        blob = dump(value).to(device) if self.rank == root else torch.empty(0, dtype=torch.uint8, device=device)
        size = torch.tensor([blob.numel()], dtype=torch.int64, device=device)
        self.broadcast(size, root).wait()
        if self.rank != root:
            blob = torch.empty(int(size.item()), dtype=torch.uint8, device=device)
        self.broadcast(blob, root).wait()
        return value if self.rank == root else load(blob.cpu())

    def close(self) -> None:
        """Retire the group; the store stays."""
        _retired.append(self.backend)
        self.backend = None


def dump(value: Any) -> torch.Tensor:
    """A value as bytes."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def load(blob: torch.Tensor) -> Any:
    """The value that `dump` wrote."""
    return json.loads(blob.numpy().tobytes())


def open_group(backend: str, store: dist.Store, rank: int, size: int, name: str, timeout_s: float) -> Group:
    """Open the group of this name with all its processes."""
    delay_exit()
    prefix = dist.PrefixStore(f"group/{name}", store)
    timeout = timedelta(seconds=timeout_s)
    try:
        if backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            return Group(dist.ProcessGroupNCCL(prefix, rank, size, options), rank, size, name)
        return Group(dist.ProcessGroupGloo(prefix, rank, size, timeout), rank, size, name)
    except RuntimeError as error:
        raise PeerLostError(
            f"process {rank} of {size} could not join group {name!r} within {timeout_s:g} s: {error}; "
            "a peer is missing, and the supervisor restarts the job from its last checkpoint"
        ) from error


def broadcast_tensor(group: Group, tensor: torch.Tensor) -> None:
    """Make a tensor what it is on rank 0, whatever its type and its layout in memory."""
    flat = pack([tensor], tensor.device)
    group.broadcast(flat, 0).wait()
    if group.rank:
        unpack(flat, [tensor])


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
        place.copy_(flat[offset : offset + size].clone().view(place.dtype).view(place.shape))
        offset += size
