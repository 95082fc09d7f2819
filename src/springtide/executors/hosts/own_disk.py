"""A host that does not see the lead's home: code asked for by digest, and the folders of jobs on its own disk.

It is told the job's id, the digest of its code and the URL of its storage, and no path of the lead's. What a job leaves
is in object storage; here is only what its processes need while they run. What nobody uses goes after a while, at once
where room is short, and all of it when the next agent of this host starts.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from springtide.errors import ExecutorError
from springtide.executors.hosts.host_fitness import LEAST_FREE_BYTES
from springtide.executors.hosts.host_messages import (
    CodePart,
    EndStart,
    OpenStart,
    PassCommand,
    SendSignal,
    SpawnWorker,
    WantCode,
    decode,
)
from springtide.executors.hosts.packed_code import unpack
from springtide.executors.local.jobs import environment
from springtide.executors.protocol import JobSpec
from springtide.training.settings import Settings, write_settings

#: Variables that name folders.
FOLDERS = ("SPRINGTIDE_CHECKPOINT_DIR", "SPRINGTIDE_OUTPUT", "SPRINGTIDE_CHAIN", "SPRINGTIDE_INPUTS")
#: Code that no start has used for so long goes, and what jobs without a start have left; at once if less is free.
KEPT_S = 3600.0
SHORT_BYTES = 4 * LEAST_FREE_BYTES
LaterOrder = SpawnWorker | PassCommand | SendSignal | EndStart


@dataclass
class AwaitedStart:
    """A start whose code is on its way, and what was ordered for it meanwhile."""

    order: OpenStart
    later: list[LaterOrder] = field(default_factory=list)


class OwnDisk:
    """The disk of this host, and the starts that wait for their code."""

    def __init__(self, root: Path, ask: Callable[[WantCode], None]) -> None:
        self.root = root
        self.ask = ask
        self.awaited: dict[str, AwaitedStart] = {}
        #: When each folder of a code or a job was last used.
        self.used_s: dict[Path, float] = {}
        self.code, self.jobs = list_folders(root)
        clear(root)
        for folder in (self.code, self.jobs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may be a disk of its own

    def arriving(self, digest: str) -> Path:
        """The file of an archive that is on its way."""
        return self.code / f"{digest}.tar"

    def has_code(self, order: OpenStart) -> bool:
        """Whether the code of a start is here; else it is asked for, and the start waits."""
        if (self.code / order.code).is_dir():
            return True
        self.awaited[order.start] = AwaitedStart(order)
        if not self.arriving(order.code).exists():
            self.arriving(order.code).touch(mode=0o600)
            self.ask(WantCode("want", order.code, 0))
        return False

    def take(self, part: CodePart) -> list[AwaitedStart]:
        """Keep a piece of code and ask for the next; after the last one, the starts that waited for it."""
        archive = self.arriving(part.digest)
        if part.failure:
            raise ExecutorError(part.failure)
        if part.data:
            with archive.open("ab") as file:
                file.write(decode(part.data))
            self.ask(WantCode("want", part.digest, archive.stat().st_size))
            return []
        unpack(archive, part.digest, self.code / part.digest)
        archive.unlink()
        return self.let_go(part.digest)

    def let_go(self, digest: str) -> list[AwaitedStart]:
        """The starts that have waited for a code; they wait no more."""
        ready = [one for one in self.awaited.values() if one.order.code == digest]
        for one in ready:
            del self.awaited[one.order.start]
        return ready

    def give_up(self, digest: str) -> list[AwaitedStart]:
        """The same, for a code that cannot be had; the next start asks for it again."""
        self.arriving(digest).unlink(missing_ok=True)
        shutil.rmtree(self.code / f"{digest}.partial", ignore_errors=True)
        return self.let_go(digest)

    def forget(self) -> None:
        """The lead is gone, and with it what it was asked for."""
        for digest in {one.order.code for one in self.awaited.values()}:
            self.give_up(digest)

    def sweep(self, used: Collection[str], now_s: float) -> None:
        """Remove the folders that no start has used for a while; `used` are those of the starts that are here."""
        kept_s = KEPT_S if shutil.disk_usage(self.root).free >= SHORT_BYTES else 0.0
        here = [path for folder in (self.code, self.jobs) for path in folder.iterdir() if path.is_dir()]
        self.used_s = {path: self.used_s.get(path, now_s) for path in here}
        for path in here:
            if str(path) in used or path.suffix:  # that of an archive which is being unpacked
                self.used_s[path] = now_s
            elif now_s - self.used_s[path] >= kept_s:
                shutil.rmtree(path, ignore_errors=True)

    def rehome(self, order: OpenStart) -> OpenStart:
        """An order with this disk's folders in place of the lead's; they are made."""
        job = self.jobs / hashlib.sha256(order.job.encode()).hexdigest()[:16]
        start = job / hashlib.sha256(order.start.encode()).hexdigest()[:16]
        spec = replace(
            order.spec,
            folder=str(self.code / order.code),
            checkpoint=replace(order.spec.checkpoint, dir=str(start / "receipts")),
            output_dir=str(job / "output"),
            log_dir=str(start / "logs"),
            home_dir=str(job),
            secrets_file=None,
        )
        environment.make_folders(spec)
        return replace(order, spec=spec, private={**environment.find_storage_files(spec, os.environ), **order.private})


def list_folders(root: Path) -> tuple[Path, Path]:
    """Where codes lie, and what jobs leave."""
    return root / "code", root / "jobs"


def clear(root: Path) -> None:
    """Remove what an agent before this one has left: nothing here outlives it, and it may be what fills the disk."""
    for folder in list_folders(root):
        shutil.rmtree(folder, ignore_errors=True)


def drop_paths(spec: JobSpec) -> JobSpec:
    """A spec without the paths of the lead's disk, for a host that puts its own in their place."""
    return replace(
        spec,
        folder="",
        checkpoint=replace(spec.checkpoint, dir=""),
        output_dir="",
        log_dir="",
        home_dir=None,
        secrets_file=None,
        preparation=None,
    )


def drop_folders(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables without those that name folders of the lead's disk."""
    return {name: value for name, value in variables.items() if name not in FOLDERS}


def find_variables(spec: JobSpec) -> dict[str, str]:
    """The variables that name folders, as they are here."""
    ours = environment.make_settings(spec)
    return write_settings(Settings(checkpoint_dir=ours.checkpoint_dir, output=ours.output, chain=ours.chain))


def find_obstacle(spec: JobSpec) -> str:
    """Why a job cannot run on a host that does not see the home; empty: it can."""
    if spec.checkpoint.is_given:
        return f"the checkpoints are to go to the folder {spec.checkpoint.dir}; name a URL in checkpoint.dir, or none"
    if spec.preparation is not None and spec.preparation.inputs:
        return "its inputs are put into that home; have the script fetch them"
    if spec.outputs:
        return "its outputs are looked for in that home; take `outputs` out of its file, they are copied to the storage"
    if spec.run_as is not None:
        return f"it runs as {spec.run_as}, whose files lie in that home"
    return ""
