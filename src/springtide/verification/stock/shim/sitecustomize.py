"""Records a digest of every optimizer's parameters after each of its steps, in whatever script this process runs.

Python imports a module of this name when it starts; `springtide verify --stock` puts this folder first on PYTHONPATH.
It may run under any interpreter that has torch, so it needs nothing of ours and nothing newer than Python 3.8. It draws
no random number and changes no tensor. One file per process, a JSON object per line: the process, each optimizer when
it first steps, each step. What is read back and compared is in `springtide.verification.stock`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import platform
import sys
import time
import weakref
from types import ModuleType
from typing import IO, Any

#: Seconds for threads to come to rest.
EXIT_S = 0.3
HERE = os.path.dirname(os.path.abspath(__file__))
HOOKED = "torch.optim.optimizer"
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
SIZE_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
#: Modules that wrap another as their attribute `module`, which is no part of the name that a script knows.
WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


class StepRecorder:
    """What this process has written, and the hook that torch calls after each step of any optimizer."""

    def __init__(self, folder: str, every: int, limit: int) -> None:
        self.folder = folder
        self.every = every
        self.limit = limit
        self.start()

    def start(self) -> None:
        """Begin anew: in a process that was forked, too, after its parent has taken steps."""
        self.pid = os.getpid()
        self.file: IO[str] | None = None
        self.stopped = False
        self.numbers: Any = weakref.WeakKeyDictionary()
        self.counts: list[int] = []
        self.sizes: list[int] = []

    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Record a step. An error of ours is written down and ends the recording, never the script."""
        if self.pid != os.getpid():
            self.start()
        if self.stopped:
            return
        try:
            self.record(optimizer)
        except Exception as error:
            self.stopped = True
            self.write({"error": f"{type(error).__name__}: {error}"})

    def record(self, optimizer: Any) -> None:
        """Write the line of a step, and of its optimizer if it is new or has more parameters than before."""
        began_s = time.perf_counter()
        number = self.numbers.setdefault(optimizer, len(self.counts))
        if number == len(self.counts):
            self.counts.append(0)
            self.sizes.append(-1)
        self.counts[number] += 1
        if self.counts[number] % self.every == 0:
            self.record_parameters(optimizer, number, began_s)
        if self.limit and self.counts[number] >= self.limit:
            self.stopped = True
            open(os.path.join(self.folder, f"done-{find_rank()}-{self.pid}"), "w").close()

    def record_parameters(self, optimizer: Any, number: int, began_s: float) -> None:
        """Digest every parameter of an optimizer, group by group."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if self.sizes[number] != len(parameters):
            self.sizes[number] = len(parameters)
            self.write(describe_optimizer(optimizer, number, parameters))
        line = {"optimizer": number, "step": self.counts[number], "digests": [digest(each) for each in parameters]}
        now_s = time.perf_counter()
        self.write({**line, "at_s": now_s, "took_s": now_s - began_s})

    def write(self, line: dict[str, Any]) -> None:
        """Append a line; the first one of a process says which it is."""
        if self.file is None:
            name = f"{find_rank():06d}-{time.time_ns()}-{self.pid}.jsonl"
            self.file = open(os.path.join(self.folder, name), "a", encoding="utf-8")  # noqa: SIM115
            self.write(describe_process())
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()


def digest(tensor: Any) -> str:
    """A short hash of a tensor's type, shape and bytes; of a sharded one, of the shard that is here."""
    import torch

    plain = find_local(tensor).cpu().contiguous()
    sign = hashlib.sha256(f"{plain.dtype}{tuple(plain.shape)}".encode())
    size = plain.numel() * plain.element_size()
    if size:
        sign.update((ctypes.c_char * size).from_address(plain.reshape(-1).view(torch.uint8).data_ptr()))
    return sign.hexdigest()[:16]


def find_local(tensor: Any) -> Any:
    """A tensor's values, without its graph; of a sharded one the shard that is here."""
    plain = tensor.detach()
    return plain.to_local() if hasattr(plain, "to_local") else plain


def describe_process() -> dict[str, Any]:
    """Which process this is, and what it runs on."""
    import torch

    used = torch.cuda.is_initialized()  # asking a device its name would start CUDA in a script that does not use it
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count() if used else 0)]
    return {
        "process": {"rank": find_rank(), "ranks": find_ranks(), "pid": os.getpid(), "argv": sys.argv},
        "environment": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "machine": platform.machine(),
            "processor": find_processor(),
            "devices": devices,
        },
    }


def describe_optimizer(optimizer: Any, number: int, parameters: list[Any]) -> dict[str, Any]:
    """An optimizer's class and the name, type and shape of each of its parameters."""
    names = name_parameters(optimizer, parameters)
    here = [find_local(each) for each in parameters]
    facts = [
        {"name": names.get(id(each), f"parameter {place}"), "dtype": str(local.dtype), "shape": list(local.shape)}
        for place, (each, local) in enumerate(zip(parameters, here))  # noqa: B905 (Python 3.8)
    ]
    return {"described": number, "class": type(optimizer).__name__, "parameters": facts}


def name_parameters(optimizer: Any, parameters: list[Any]) -> dict[int, str]:
    """Names by the identity of the parameters: the optimizer's own, or those in the modules alive in this process."""
    given = [name for group in optimizer.param_groups for name in group.get("param_names", ())]
    if len(given) == len(parameters):
        return {id(each): name for each, name in zip(parameters, given)}  # noqa: B905 (Python 3.8)
    wanted = {id(each) for each in parameters}
    candidates = [
        {id(each): clean_name(root, name) for name, each in root.named_parameters() if id(each) in wanted}
        for root in find_roots()
    ]
    names: dict[int, str] = {}
    for candidate in sorted(candidates, key=len):  # the module that has most of them has the last word
        names.update(candidate)
    return names


def find_roots() -> list[Any]:
    """The modules alive that are part of no other."""
    from torch.nn import Module

    modules = [each for each in gc.get_objects() if issubclass(type(each), Module)]
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    return [module for module in modules if id(module) not in inner]


def clean_name(root: Any, name: str) -> str:
    """A parameter's name without what DDP and torch.compile put before it."""
    name = name.replace("_orig_mod.", "")
    return name[len("module.") :] if type(root).__name__ in WRAPPERS and name.startswith("module.") else name


def find_rank() -> int:
    """This process's rank: torch.distributed's, or the launcher's, or 0."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return find_number(RANK_VARIABLES, 0)


def find_ranks() -> int:
    """How many ranks there are."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return find_number(SIZE_VARIABLES, 1)


def find_number(variables: tuple[str, ...], default: int) -> int:
    """The number in the first of these variables that holds one."""
    return next((int(os.environ[name]) for name in variables if os.environ.get(name, "").isdigit()), default)


def find_processor() -> str:
    """The processor's model, where the system says it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("model name")]
        return lines[0].partition(":")[2].strip() if lines else platform.processor()
    except OSError:
        return platform.processor()


class HookOnImport:
    """Registers the recorder as soon as torch's optimizers are imported; nothing imports torch for it."""

    def __init__(self, recorder: StepRecorder) -> None:
        self.recorder = recorder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module's own spec, with a loader that registers the hook after it."""
        if name != HOOKED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        original = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            original(module)
            module.register_optimizer_step_post_hook(self.recorder)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def run_shadowed() -> None:
    """Run the `sitecustomize` that this one stands before, as Python would have."""
    places = [place for place in sys.path if os.path.abspath(place or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def come_to_rest() -> None:
    """Give threads of collectives a moment before the interpreter ends.

    One that still lets go of a tensor then is unwound inside C++ code, and the process aborts ("terminate called
    without an active exception"), in any script: on fast machines every tenth run or more.
    """
    if "torch.distributed" in sys.modules:
        time.sleep(EXIT_S)


def install(environ: Any) -> None:
    """Record this process, if it is one of a recorded run."""
    folder = environ.get("SPRINGTIDE_STOCK_DIR")
    if folder:
        recorder = StepRecorder(
            folder, int(environ.get("SPRINGTIDE_STOCK_EVERY", "1")), int(environ.get("SPRINGTIDE_STOCK_STEPS", "0"))
        )
        sys.meta_path.insert(0, HookOnImport(recorder))
        atexit.register(come_to_rest)


if __name__ == "sitecustomize":
    install(os.environ)
    run_shadowed()
