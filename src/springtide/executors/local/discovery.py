"""The devices of this machine: GPUs as `nvidia-smi` lists them, else CPU slots of one thread each.

Never imports torch. Reading the tool's output and choosing what a process may see are pure functions; `discover` is
the only effect. CPU slots can be declared to be of several types, which differ in the kernels that torch may use: so a
mixed machine can be tried without GPUs.
"""

import csv
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from springtide.errors import InputError

QUERY = ("--query-gpu=index,uuid,name,memory.total,mig.mode.current", "--format=csv,noheader,nounits")
APPS = ("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
LIST = ("-L",)
TIMEOUT_S = 20.0

#: The types of CPU slots, with the variables that make them differ: the bits of D1 depend on them, those of D2 do not.
CPU_TYPES: Mapping[str, Mapping[str, str]] = {
    "cpu": {},
    "cpu-sse41": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
}

_GPU_LINE = re.compile(r"GPU (?P<index>\d+): .*\(UUID: (?P<uuid>[^)]+)\)")
_MIG_LINE = re.compile(r"\s+MIG (?P<profile>\S+)\s+Device\s+(?P<index>\d+): \(UUID: (?P<uuid>[^)]+)\)")

_SLOTS = re.compile(r"(?P<count>[1-9]\d{0,3})(:(?P<type>[a-z][a-z0-9.-]*))?")

#: Runs nvidia-smi with these arguments: its output, or the reason why there is none.
Ask = Callable[[Sequence[str]], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, a MIG slice of one, or one CPU slot."""

    name: str
    type: str
    #: What CUDA_VISIBLE_DEVICES calls it; empty for a CPU slot.
    uuid: str = ""
    memory_gib: float = 0.0
    #: Processes that use it now; somebody else's, when asked before any job runs.
    pids: tuple[int, ...] = ()

    @property
    def is_busy(self) -> bool:
        """Whether somebody uses it."""
        return bool(self.pids)


#: What nvidia-smi says, with an error code, where every GPU is gone.
NO_GPUS = "No devices were found"


@dataclass(frozen=True, slots=True)
class Discovery:
    """The devices found, and what a user should know about the search."""

    devices: tuple[Device, ...]
    notes: tuple[str, ...] = field(default=())
    #: Why the GPUs could not be listed, if so: those that are not in `devices` may well be there.
    problem: str = ""


def ask_nvidia_smi(arguments: Sequence[str]) -> tuple[str, str]:
    """Run nvidia-smi; its output, or an empty one and the reason."""
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S)
    except FileNotFoundError:
        return "", ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"nvidia-smi gave no answer: {error}"
    if done.returncode != 0:
        words = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        return "", f"nvidia-smi ended with code {done.returncode}: {words[0]}"
    return done.stdout, ""


def discover(cpu_slots: str | None = None, ask: Ask = ask_nvidia_smi) -> Discovery:
    """This machine's devices: its GPUs, or if there are none `cpu_slots` (default: one for each core we may use)."""
    query, problem = ask(QUERY)
    gpus = parse_gpus(query, ask(LIST)[0], ask(APPS)[0]) if query.strip() else ()
    notes = [problem] if problem else []
    notes += [f"{gpu.name} is in use by process {', '.join(map(str, gpu.pids))}" for gpu in gpus if gpu.is_busy]
    unknown = "" if NO_GPUS in problem else problem
    return Discovery(gpus or make_cpu_slots(cpu_slots or str(count_cores())), tuple(notes), unknown)


def count_cores() -> int:
    """The cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_cpu_slots(text: str) -> tuple[Device, ...]:
    """The CPU slots of a description: a number, or numbers by type as in `2:cpu,2:cpu-sse41`."""
    device_types = parse_slots(text, "cpu")
    unknown = [device_type for device_type in device_types if device_type not in CPU_TYPES]
    if unknown:
        raise InputError(f"devices {text!r}: there are no CPU slots of type {unknown[0]}, only {', '.join(CPU_TYPES)}")
    return tuple(Device(f"cpu:{index}", device_type) for index, device_type in enumerate(device_types))


def parse_slots(text: str, usual: str) -> tuple[str, ...]:
    """The type of each slot of a description: a number of the usual type, or NUMBER:TYPE joined by commas."""
    device_types: list[str] = []
    for part in text.split(","):
        match = _SLOTS.fullmatch(part.strip().lower())
        if match is None:
            raise InputError(
                f"devices {text!r}: {part!r} is neither a number (1 or more) nor NUMBER:TYPE; "
                "several are joined by commas, as in 2:cpu,2:cpu-sse41"
            )
        device_types += [match["type"] or usual] * int(match["count"])
    return tuple(device_types)


def parse_gpus(query: str, listing: str, apps: str) -> tuple[Device, ...]:
    """The GPUs in nvidia-smi's outputs; one in MIG mode is replaced by its slices, by index."""
    users = parse_apps(apps)
    slices = parse_slices(listing)
    found: list[Device] = []
    for index, uuid, name, memory_mib, mig in parse_rows(query, 5):
        device_type = name_type(name)
        whole = Device(f"gpu:{index}", device_type, uuid, parse_number(memory_mib) / 1024, users.get(uuid, ()))
        found += make_slices(whole, slices.get(uuid, ()), users) if mig.lower() == "enabled" else [whole]
    return tuple(found)


def make_slices(gpu: Device, slices: Sequence[tuple[str, str, str]], users: dict[str, tuple[int, ...]]) -> list[Device]:
    """The MIG slices of a GPU as devices of their own; their memory is in their profile's name (`1g.5gb`)."""
    return [
        Device(
            name=f"{gpu.name}.{index}",
            type=f"{gpu.type}-{profile.replace('+', '-')}",
            uuid=uuid,
            memory_gib=parse_number("".join(re.findall(r"\.(\d+)gb", profile))),
            pids=users.get(uuid, ()),
        )
        for index, profile, uuid in slices
    ]


def parse_slices(listing: str) -> dict[str, list[tuple[str, str, str]]]:
    """(index, profile, UUID) of every MIG slice in `nvidia-smi -L`, by the UUID of its GPU."""
    slices: dict[str, list[tuple[str, str, str]]] = {}
    gpu = ""
    for line in listing.splitlines():
        if whole := _GPU_LINE.match(line):
            gpu = whole["uuid"]
        elif part := _MIG_LINE.match(line):
            slices.setdefault(gpu, []).append((part["index"], part["profile"], part["uuid"]))
    return slices


def parse_apps(apps: str) -> dict[str, tuple[int, ...]]:
    """The processes on each GPU, by its UUID."""
    users: dict[str, tuple[int, ...]] = {}
    for uuid, pid, _ in parse_rows(apps, 3):
        if pid.isdigit():
            users[uuid] = (*users.get(uuid, ()), int(pid))
    return users


def parse_rows(text: str, columns: int) -> list[list[str]]:
    """The rows of nvidia-smi's CSV that have all columns, stripped."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    return [row for row in rows if len(row) == columns]


def parse_number(text: str) -> float:
    """A number, or 0 where nvidia-smi says [N/A]."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def name_type(name: str) -> str:
    """A product name as a device type: `NVIDIA A100-SXM4-40GB` is `a100-sxm4-40gb`."""
    words = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
    return words.removeprefix("nvidia-") or "gpu"


def choose_visible(devices: Sequence[Device]) -> dict[str, str]:
    """The variables that let a process see these devices and no other, in this order; GPUs by UUID."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device in devices if device.uuid)}


def choose_kernels(device: Device) -> dict[str, str]:
    """The variables that make a CPU slot one of its type; none for a GPU."""
    return dict(CPU_TYPES.get(device.type, {}))
