"""`springtide doctor`: check this machine and this installation."""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import disk_usage

import typer

from springtide.cli.connections import has_server
from springtide.cli.doctor_prove import run_proofs
from springtide.cli.maintenance import LOOK, REPAIR, open_store, read_ids
from springtide.cli.option_groups import flatten
from springtide.cli.outputs import OutputForm, print_table, tell
from springtide.errors import InputError, SpringtideError

OLDEST_PYTHON = (3, 11)
SELF_CHECK_S = 60.0
TAR_BUG = "CVE-2025-8194"
PASTE = "CUDA is written, but was not yet run by us: please paste the above into an issue, whatever it says"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that was looked at: ok, warning or failed, what was seen, and what to do."""

    check: str
    status: str
    seen: str
    remedy: str = ""


@flatten
def run(
    form: OutputForm,
    repair: bool = typer.Option(
        False, "--repair", help="Recreate the jobs of folders that the database does not know; stop the server first."
    ),
    prove: Path = typer.Option(
        None, metavar="FILE", help="Prove by bits, in ten minutes, what the devices here do; writes JSON to send back."
    ),
    engine: str = typer.Option("local", help="With ray: check the hosts of a Ray cluster too."),
    address: str = typer.Option("auto", metavar="HOST:PORT", help="The Ray cluster, for --engine ray."),
    storage: str = typer.Option(
        None,
        metavar="URL",
        help="Check this too, as given to serve --storage; hosts then need not share the state directory.",
    ),
) -> None:
    """Check Python, torch, devices, disk, state directory and server. Exit code 1 if something must be done.

    Where there are GPUs, each of them trains for a moment, twice, to see that the bits are the same.

    Examples:

      springtide doctor

      springtide stop && springtide doctor --repair

      springtide doctor --prove proof.json

      springtide doctor --engine ray --address 10.0.0.5:6379
    """
    if prove is not None:
        run_proofs(prove, form)
    if engine not in ("local", "ray"):
        raise InputError(f"engine {engine!r} is not known to doctor; there are: local, ray")
    findings = [*(repair_home() if repair else ()), *check_all()]
    findings += [check_storage(storage)] if storage is not None else []
    findings += check_ray(address, storage) if engine == "ray" else []
    failed = any(finding.status == "failed" for finding in findings)
    document = {"schema": 1, "ok": not failed, "findings": [asdict(finding) for finding in findings]}
    if not form.write(document):
        print_table(
            ("CHECK", "STATUS", "SEEN", "WHAT TO DO"),
            ((f.check, f.status, f.seen, f.remedy) for f in findings),
            legend="STATUS: warning: it works, but look into it; failed: fix it first",
        )
    raise typer.Exit(1 if failed else 0)


def check_all() -> Iterator[DoctorFinding]:
    """Everything that is checked, in order."""
    yield check_python()
    yield check_system()
    yield check_torch()
    yield from check_devices()
    yield from check_gpus()
    yield check_tar()
    yield from check_home()
    yield from check_database()
    yield check_server()


def check_python() -> DoctorFinding:
    """The version of Python."""
    seen = platform.python_version()
    if sys.version_info >= OLDEST_PYTHON:
        return DoctorFinding("python", "ok", seen)
    return DoctorFinding("python", "failed", seen, "install Python 3.11 or newer")


def check_system() -> DoctorFinding:
    """The operating system."""
    seen = f"{platform.system()} {platform.release()} ({platform.machine()})"
    if platform.system() == "Linux":
        return DoctorFinding("system", "ok", seen)
    if platform.system() == "Darwin":
        return DoctorFinding("system", "warning", seen, "simulate, plan and train work; serve needs Linux")
    return DoctorFinding("system", "failed", seen, "use Linux, or WSL2 on Windows")


def check_torch() -> DoctorFinding:
    """Whether jobs can train here."""
    from springtide.control.scheduling.speeds import find_torch_version

    version = find_torch_version()
    if version:
        return DoctorFinding("torch", "ok", version)
    return DoctorFinding("torch", "failed", "not installed", "pip install 'springtide[train]'")


def check_devices() -> Iterator[DoctorFinding]:
    """What jobs would run on."""
    from springtide.executors.local.discovery import discover

    found = discover()
    types = sorted({device.type for device in found.devices})
    yield DoctorFinding("devices", "ok", f"{len(found.devices)} x {', '.join(types)}")
    for note in found.notes:
        yield DoctorFinding("devices", "warning", note, "free the device, or repair the driver")


def check_gpus(device: str = "cuda") -> Iterator[DoctorFinding]:
    """What the GPUs do for a minute at most, tried in a process of its own; nothing where there are none."""
    from springtide.control.scheduling.speeds import find_torch_version
    from springtide.executors.local.discovery import discover

    if not find_torch_version() or not any(found.uuid for found in discover().devices):
        return
    command = [sys.executable, "-m", "springtide.training.determinism.selfchecks", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SELF_CHECK_S)
    except subprocess.TimeoutExpired:
        yield DoctorFinding(
            "self-check", "failed", f"no answer within {SELF_CHECK_S:g} s", "see whether others use the GPUs"
        )
        return
    for line in done.stdout.splitlines():
        told = json.loads(line)
        yield DoctorFinding(told["check"], "ok" if told["ok"] else "failed", told["seen"])
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        yield DoctorFinding("self-check", "failed", words[-1], "repair the driver, or install a torch built for it")
    tell(PASTE)


def check_home() -> Iterator[DoctorFinding]:
    """The state directory and the disk under it."""
    from springtide.control.storage.state_dir import find_home
    from springtide.errors import StateError
    from springtide.training.state.disks import is_disk_low

    home = find_home()
    try:
        home.make()
    except StateError as error:
        yield DoctorFinding("state", "failed", str(home.root), str(error))
        return
    yield DoctorFinding("state", "ok", str(home.root))
    usage = disk_usage(home.root)
    seen = f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} GB free"
    if is_disk_low(home.root):
        yield DoctorFinding("disk", "warning", seen, "less than 5 % or 2 GB; free space: springtide du, springtide gc")
    else:
        yield DoctorFinding("disk", "ok", seen)


def check_tar() -> DoctorFinding:
    """Whether Python's own reader of tar files can be made to loop for ever; ours, which reads uploads, cannot."""
    bug = f"; Python's own, which has {TAR_BUG}, is not used" if has_tar_bug() else ""
    return DoctorFinding("tar", "ok", f"uploads are read by our own reader{bug}")


def has_tar_bug() -> bool:
    """Whether tarfile takes a block of negative size for a step back."""
    import tarfile

    try:
        tarfile.TarInfo()._block(-1)  # type: ignore[attr-defined]
    except tarfile.TarError:
        return False
    return True


def check_database() -> Iterator[DoctorFinding]:
    """Whether the database is whole, and knows the jobs whose folders are here."""
    from springtide.control.storage.database.database_checks import (
        REMEDY,
        UNUSABLE_REMEDY,
        UnusableDatabaseError,
        find_damage,
    )
    from springtide.control.storage.orphans import find_orphans
    from springtide.control.storage.state_dir import find_home

    home = find_home()
    if home.elsewhere.exists() or not home.database.exists():
        return
    try:
        damage = find_damage(home.database)
    except UnusableDatabaseError as error:
        yield DoctorFinding("database", "failed", str(error), UNUSABLE_REMEDY)
        return
    if damage:
        yield DoctorFinding("database", "failed", damage, REMEDY)
        return
    orphans = find_orphans(home, read_ids(home.database))
    if orphans:
        told = sum(orphan.manifest is not None for orphan in orphans)
        seen = (
            f"whole, but it does not know {len(orphans)} jobs whose folders are here; {told} of them can be taken back"
        )
        yield DoctorFinding("database", "warning", seen, f"{REPAIR}; or look at them with: {LOOK} --dry-run")
    else:
        yield DoctorFinding("database", "ok", "whole, and knows every job whose folder is here")


def repair_home() -> Iterator[DoctorFinding]:
    """Make jobs of the folders that the database does not know."""
    from springtide.control.server import hold_lock
    from springtide.control.storage.orphans import adopt
    from springtide.control.storage.state_dir import find_home

    with hold_lock(find_home().make()), open_store() as (home, store):
        adopted, left = adopt(home, store, time.time())
    for record in adopted:
        seen = f"{record.name} ({record.id}) of {record.user} is known again: {record.state}"
        remedy = f"go on with it: springtide resume {record.id}" if record.reason == "adopted" else ""
        yield DoctorFinding("repair", "ok", seen, remedy)
    for orphan in left:
        yield DoctorFinding("repair", "warning", f"{orphan.folder} stays: {orphan.problem}", f"look at it: {LOOK}")
    if not adopted and not left:
        yield DoctorFinding("repair", "ok", "nothing to repair")


def check_storage(storage: str) -> DoctorFinding:
    """Whether object storage can be written and read from here."""
    from springtide.control.storage.places.storage_checks import check_server_storage

    seen = storage.rpartition("@")[2]  # a password that was typed there is not shown again
    try:
        check_server_storage(storage)
    except SpringtideError as error:
        return DoctorFinding("storage", "failed", seen, str(error))
    return DoctorFinding("storage", "ok", seen)


def check_ray(address: str, storage: str | None) -> Iterator[DoctorFinding]:
    """Whether a Ray cluster lets us in, and what its hosts have; the agents of hosts are not started for that."""
    from springtide.control.storage.state_dir import find_home
    from springtide.executors.ray.host_survey import survey

    home = find_home().root
    try:
        found = survey(address, home, needs_home=storage is None)
    except SpringtideError as error:
        yield DoctorFinding("ray", "failed", address, str(error))
        return
    yield DoctorFinding("ray", "ok", f"{address}, Ray {found.ray}, Python {found.python}, {len(found.hosts)} hosts")
    for host in found.hosts:
        status = "failed" if host.problem else "warning" if host.remark else "ok"
        yield DoctorFinding(f"host {host.name}", status, host.seen, host.problem or host.remark)


def find_killed() -> DoctorFinding | None:
    """The finding that the server of this state directory ended without saying so, if it did."""
    import os

    from springtide.control.storage.state_dir import find_home, read_address
    from springtide.executors.local.daemon import is_alive

    home = find_home()
    address = None if os.environ.get("SPRINGTIDE_URL") else read_address(home)
    if address is None or is_alive(int(address["pid"])):
        return None
    seen = f"the server (process {address['pid']}, {address['url']}) was killed or has crashed: it left {home.address}"
    remedy = f"start it again: springtide serve; jobs go on from their checkpoints; its last words: {home.log}"
    return DoctorFinding("server", "failed", seen, remedy)


def check_server() -> DoctorFinding:
    """Whether a server answers, and lets us in."""
    from springtide.client.client import Client

    killed = find_killed()
    if killed is not None:
        return killed
    if not has_server():
        return DoctorFinding("server", "ok", "none runs", "submit starts one")
    try:
        with Client() as client:
            told = client.server()
    except SpringtideError as error:
        return DoctorFinding("server", "failed", str(error))
    seen = f"{client.url}, {told.devices} devices, policy {told.policy}"
    still, aside = told.document.get("standstill"), int(told.document.get("quarantined") or 0)
    if still:
        return DoctorFinding("server", "failed", f"{seen}: {still}", "see its log, and GET /readyz")
    if outage := told.document.get("outage"):
        return DoctorFinding(
            "server", "warning", f"{seen}; {outage}", "find out why with: springtide doctor --engine ray"
        )
    if aside:
        remedy = "see what they are, as an admin: GET /api/v1/quarantine"
        return DoctorFinding("server", "warning", f"{seen}; {aside} reports could not be taken in", remedy)
    return DoctorFinding("server", "ok", seen)
