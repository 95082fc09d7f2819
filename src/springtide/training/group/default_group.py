"""Torch's own launcher and default group: the store that torchrun serves, and the calls that an elastic run refuses."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NoReturn

import torch.distributed as dist

from springtide.errors import JobError
from springtide.training.group.groups import connect_store
from springtide.training.settings import Settings

TORCHS_OWN = (dist.init_process_group, dist.distributed_c10d._get_default_group)


def find_store(settings: Settings, environ: Mapping[str, str]) -> dist.Store | None:
    """The store the processes meet at: our launcher's, torchrun's, or none for a process alone."""
    if settings.store is not None:
        return connect_store(settings.store, settings.collective_timeout_s)
    if "RANK" not in environ or "MASTER_ADDR" not in environ:
        return None
    served = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        environ["MASTER_ADDR"],
        int(environ["MASTER_PORT"]),
        is_master=not served and environ["RANK"] == "0",
        wait_for_workers=False,
        timeout=timedelta(seconds=settings.collective_timeout_s),
    )
    return dist.PrefixStore(f"springtide/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def refuse_groups() -> None:
    """Refuse a default group of the script's own: its ranks would be processes, not logical workers."""
    if dist.is_initialized():
        refuse_group()
    dist.init_process_group = refuse_group
    # What dist.all_reduce, dist.get_rank and all others ask for first.
    dist.distributed_c10d._get_default_group = refuse_group


def allow_groups() -> None:
    """Take the refusal back, for a process that goes on to measure stock DDP."""
    dist.init_process_group, dist.distributed_c10d._get_default_group = TORCHS_OWN


def refuse_group(*_: Any, **__: Any) -> NoReturn:
    """What `dist.init_process_group` and all that needs a default group do in an elastic run."""
    raise JobError(
        "torch.distributed's default group (init_process_group, all_reduce, get_rank ...) in an elastic run: its ranks "
        "would be processes, of which there may be any number, and not logical workers. Remove it; reduce values with "
        "run.sum(...) and run.mean(...), evaluate with run.shard(...), print and save where run.is_main"
    )
