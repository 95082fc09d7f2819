"""Torch's own launcher and default group: what torchrun tells a script, and the calls that an elastic run refuses.

A script asks for its ranks in three ways. The number in the environment is told as a rank of DDP would read it; calls
that need a group are refused; and a branch that asks whether there is a group is left out on every process, and said.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from springtide.errors import JobError
from springtide.training.group.groups import connect_store
from springtide.training.settings import Settings
from springtide.training.state.script.loop_variables import is_of_script

TORCHS_OWN = (dist.init_process_group, dist.distributed_c10d._get_default_group, dist.is_initialized)
WORLD_SIZE = "WORLD_SIZE"
#: What the launcher has written there, in a process that has a run: its number of processes, or nothing.
_told_before: list[str | None] = []


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


def tell_world_size(logical_workers: int) -> None:
    """Show the script the number that a rank of DDP would read; of processes there may be any number.

    The run has read the launcher's number before, and nobody needs it again.
    """
    _told_before.append(os.environ.get(WORLD_SIZE))
    os.environ[WORLD_SIZE] = str(logical_workers)


def refuse_groups(warn: Callable[[str], None] | None = None) -> None:
    """Refuse a default group of the script's own: its ranks would be processes, not logical workers."""
    if dist.is_initialized():
        refuse_group()
    dist.init_process_group = refuse_group
    # What dist.all_reduce, dist.get_rank and all others ask for first.
    dist.distributed_c10d._get_default_group = refuse_group
    if warn is not None:
        dist.is_initialized = watch_question(warn)


def allow_groups() -> None:
    """Take it all back, for a process that goes on to measure stock DDP."""
    dist.init_process_group, dist.distributed_c10d._get_default_group, dist.is_initialized = TORCHS_OWN
    while _told_before:
        before = _told_before.pop()
        os.environ.pop(WORLD_SIZE, None)
        if before is not None:
            os.environ[WORLD_SIZE] = before


def watch_question(warn: Callable[[str], None]) -> Callable[[], bool]:
    """`dist.is_initialized` in an elastic run: False, and where the script asks, once a word on what it leaves out.

    A refusal would be too much: most such branches print, or wait for others, on the first rank.
    """
    told: list[str] = []
    process = os.getpid()

    @functools.wraps(TORCHS_OWN[2])
    def is_initialized() -> bool:
        # What torch compiles asks nobody; and what a DataLoader's worker would say, this process has said.
        if not torch.compiler.is_compiling() and not told and os.getpid() == process:
            told.extend(tell_question(sys._getframe(1)))
            for text in told:
                warn(text)
        return False

    return is_initialized


def tell_question(frame: FrameType) -> Iterator[str]:
    """What to say of a question, if it is the script's own: libraries ask it all the time."""
    if is_of_script(frame):
        yield (
            f"{frame.f_code.co_filename}:{frame.f_lineno} asks dist.is_initialized(), which is False on every process "
            "of an elastic run: what the script does over ranks where it is True (all_reduce, get_world_size) is left "
            "out, where DDP does it. Reduce values after `for ... in step:` with run.sum(...) and run.mean(...), take "
            "run.logical_workers for the number of ranks, and print and save where run.is_main"
        )


def refuse_group(*_: Any, **__: Any) -> NoReturn:
    """What `dist.init_process_group` and all that needs a default group do in an elastic run."""
    raise JobError(
        "torch.distributed's default group (init_process_group, all_reduce, get_rank ...) in an elastic run: its ranks "
        "would be processes, of which there may be any number, and not logical workers. Remove it; reduce values with "
        "run.sum(...) and run.mean(...), evaluate with run.shard(...), print and save where run.is_main"
    )
