"""What a worker's environment holds: a short allow-list of ours, the job's own variables and secrets, and ours.

Pure but for reading the secrets file and making a job's folders. Nothing of the server's environment gets through that
is not on the list.
"""

import errno
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from springtide.errors import JobError
from springtide.executors.local.as_user import do_as, do_within, find_user
from springtide.executors.local.safe_files import make_given, make_kept, open_to_read
from springtide.executors.protocol import JobSpec
from springtide.training.settings import Settings

#: How long a folder may take to be made: it may lie on a disk that hangs.
FOLDER_S = 15.0
#: In a job's output folder: the digests that its receipt is made of.
CHAIN = "chain.jsonl"
ALLOWED = ("PATH", "HOME", "LANG")
#: Variables by which object storage is reached.
STORAGE_PREFIXES = ("AWS_", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT")
#: Those of them that name what lies on the disk of whoever has them: each machine has its own.
ON_DISK = (
    *("GOOGLE_APPLICATION_CREDENTIALS", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_CA_BUNDLE"),
    *("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"),
)
#: In every process of an agent, so that what outlives it can be found: the agent's name, fixed by its state folder.
MARK = "SPRINGTIDE_AGENT"

#: Variables that libraries read when they are loaded, so the fork server must have them before it imports torch.
EARLY_PREFIXES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "ATEN_", "TORCH_", "PYTORCH_"),
    *("CUDA_", "CUBLAS_", "NVIDIA_", "LD_", "PYTHON", "MALLOC_"),
)

#: Iteration over sets must not differ from one start to the next; output must not wait in a buffer.
INTERPRETER = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}


def allow(environ: Mapping[str, str]) -> dict[str, str]:
    """What of our own environment a worker may have."""
    return {name: environ[name] for name in ALLOWED if name in environ}


def choose_early(spec: JobSpec) -> dict[str, str]:
    """The job's variables that must be set before torch is imported; equal ones share a fork server."""
    threads = {name: str(spec.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    given = {name: value for name, value in spec.env.items() if name.startswith(EARLY_PREFIXES)}
    return {**INTERPRETER, **threads, **given}


def find_home(spec: JobSpec) -> dict[str, str]:
    """The home of the user under whom a job runs, if that is another than ours."""
    return {"HOME": find_user(spec.run_as).home} if spec.run_as is not None else {}


def choose_own(spec: JobSpec) -> dict[str, str]:
    """The job's variables, but for names that are ours to give."""
    return {name: value for name, value in spec.env.items() if not name.startswith("SPRINGTIDE_")}


def name_folders(spec: JobSpec) -> dict[str, str]:
    """Where a script finds its inputs, if it has some, and puts its outputs."""
    inputs = {"SPRINGTIDE_INPUTS": spec.preparation.inputs_dir} if spec.preparation is not None else {}
    return {**inputs, "SPRINGTIDE_OUTPUT": spec.output_dir}


def read_secrets(spec: JobSpec) -> dict[str, str]:
    """The job's secrets."""
    if spec.secrets_file is None:
        return {}
    try:
        with open_to_read(Path(spec.secrets_file)) as file:
            secrets = json.load(file)
    except (OSError, ValueError) as error:
        raise JobError(
            f"secrets file {spec.secrets_file} cannot be read ({type(error).__name__}); submit again"
        ) from None
    return {str(name): str(value) for name, value in secrets.items()}


def read_private(spec: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """What is told to a job's processes and written nowhere: its secrets, and the way to the object storage it uses.

    That of the server's own environment, unless the job runs as another user, who must bring one along.
    """
    return {**find_storage_way(spec, environ), **read_secrets(spec)}


def find_storage_way(spec: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """What our environment says of the object storage that a job uses, and the job itself does not."""
    uses_storage = bool(spec.checkpoint.url or spec.checkpoint.output_url) and spec.run_as is None
    names = [name for name in environ if name.startswith(STORAGE_PREFIXES) and name not in spec.env]
    return {name: environ[name] for name in names} if uses_storage else {}


def find_storage_files(spec: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """What of that names files of this machine's disk."""
    return {name: value for name, value in find_storage_way(spec, environ).items() if name in ON_DISK}


def read_portable(spec: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """What is told to a job's processes on a machine with another disk: the same without names of our files."""
    ours = find_storage_files(spec, environ)
    way = {name: value for name, value in find_storage_way(spec, environ).items() if name not in ours}
    return {**way, **read_secrets(spec)}


def make_settings(spec: JobSpec) -> Settings:
    """What the training runtime is told about a job, but for what differs from process to process."""
    return Settings(
        logical_workers=spec.logical_workers,
        level=spec.determinism,
        threads=spec.threads,
        max_steps=spec.steps,
        checkpoint_dir=Path(spec.checkpoint.dir),
        checkpoint_every_s=spec.checkpoint.every_s,
        checkpoint_keep=spec.checkpoint.keep,
        checkpoint_url=spec.checkpoint.url or None,
        checkpoint_generation=spec.checkpoint.generation,
        checkpoint_saved=spec.checkpoint.saved_step,
        output_url=spec.checkpoint.output_url or None,
        allow_code_change=spec.allow_code_change,
        output=Path(spec.output_dir),
        chain=Path(spec.output_dir) / CHAIN,
    )


def write_torchrun(rank: int, hosts: Sequence[str], store: str, restarts: int) -> dict[str, str]:
    """The variables torchrun gives to a process of a gang; `hosts` are those of each rank.

    The store is served by us, as by its agent.
    """
    address, _, port = store.rpartition(":")
    groups, size = list(dict.fromkeys(hosts)), len(hosts)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(hosts[:rank].count(hosts[rank])),
        "GROUP_RANK": str(groups.index(hosts[rank])),
        "ROLE_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(hosts.count(hosts[rank])),
        "GROUP_WORLD_SIZE": str(len(groups)),
        "ROLE_WORLD_SIZE": str(size),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
    }


def find_script(spec: JobSpec) -> tuple[str, tuple[str, ...]] | None:
    """The script and arguments of `python script.py ...`; None for any other command."""
    if len(spec.argv) < 2 or not is_python(spec.argv[0]) or spec.argv[1].startswith("-"):
        return None
    return spec.argv[1], spec.argv[2:]


def is_python(word: str) -> bool:
    """Whether a command's first word means the interpreter."""
    return Path(word).name in ("python", "python3")


def check_command(spec: JobSpec) -> None:
    """Refuse a command that cannot be run."""
    if not spec.argv:
        raise JobError("the job's command is empty; `run` must name one, as in `run: python train.py`")
    found = find_script(spec)
    if found is not None and not do_as(spec.run_as, (Path(spec.folder) / found[0]).is_file):
        raise JobError(f"script {found[0]!r} is not in the job's folder; `run` names it relative to `workdir`")


def make_folder(path: Path) -> None:
    """Have a folder in which we can write; what had to be made is private."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def make_folders(spec: JobSpec) -> None:
    """Have the folders of a job.

    With `run_as` those for its user's files lie in folders that stay ours, as do those for logs; a folder that the user
    has named is made and looked at as that user, and belongs to whom it belonged.
    """
    checkpoints, output, logs = Path(spec.checkpoint.dir), Path(spec.output_dir), Path(spec.log_dir)
    if spec.run_as is None:
        for folder in (checkpoints, output, logs):
            do_within(partial(make_folder, folder), FOLDER_S)
        return
    user, home = find_user(spec.run_as), Path(spec.home_dir or logs.parent)
    make_kept(logs, home)
    make_given(output, home, user.uid, user.gid)
    if spec.checkpoint.is_given:
        do_as(spec.run_as, lambda: make_folder(checkpoints))
    else:
        make_given(checkpoints, home, user.uid, user.gid)


def prepare(spec: JobSpec) -> tuple[str, str] | None:
    """Look for all that a start needs, and make its folders; a code and a sentence if something is missing."""
    try:
        check_command(spec)
    except (JobError, OSError) as error:
        return "no_script", str(error)
    try:
        read_secrets(spec)
    except JobError as error:
        return "no_secrets", str(error)
    try:
        make_folders(spec)
    except KeyError:
        return "no_user", f"run_as {spec.run_as!r} is no user of this system; add it, or name another"
    except OSError as error:
        whom = f" by user {spec.run_as}" if spec.run_as is not None else ""
        return (
            "no_folder",
            f"a folder of the job cannot be made or written{whom} ({error}); choose another checkpoint.dir",
        )
    return None


def describe_missing_init(when: str) -> str:
    """What to tell the user of a script that never called `springtide.init`."""
    return (
        f"the script did not call springtide.init {when}. Add these lines:\n"
        "  import springtide\n"
        "  run = springtide.init(logical_workers=8, seed=0)\n"
        "  model, optimizer, loader = run.prepare(model, optimizer, dataset, batch_size=32)\n"
        "  for epoch in run.epochs(90):\n"
        "      for step in loader:\n"
        "          for x, y in step:   # forward and backward in here, optimizer.step() after it\n"
        "or set `elastic: false` and `devices: K` to run it unchanged, as a gang of K that is never resized."
    )


def describe_memory(spec: JobSpec) -> str:
    """What to tell the user of a job that was ended for its memory."""
    limit = f"{(spec.memory_bytes or 0) / 2**20:,.0f} MiB"
    return (
        f"its processes on one machine passed the {limit} of memory that `memory` in the job file, or the server's "
        "most_memory, gives them, and were ended; ask for more, use less (a smaller batch, fewer workers of data "
        "loaders), or hold fewer devices on a machine"
    )
