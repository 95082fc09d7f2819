"""Each ingredient of the promise left out in turn: equality with stock DDP must break, at a recorded place.

The network is the CNN example: BatchNorm, dropout and augmentation, four logical workers in one process. A proof that
cannot fail proves nothing.
"""

import gc
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sklearn.datasets  # noqa: F401 - imported before forking, as is what the first optimizer imports
import torch
import torch._dynamo

import springtide
from springtide.examples import folder
from springtide.training.reduction import buckets, gloo_order
from springtide.training.workers.buffers import Buffers
from springtide.training.workers.contexts import Contexts
from springtide.training.workers.sampling import Seeded
from springtide.verification.digest_compare import Difference, Records, check_reference, find_difference, read_records

STEPS = 3
EXAMPLE = folder("cnn")
FORK_RUNS = Path(__file__).parents[1] / "examples" / "fork_runs.py"
STOCK = FORK_RUNS.parent / "scripts" / "cnn" / "train_ddp.py"

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """Three steps of the hand-written script on stock DDP with four ranks."""
    traces = tmp_path_factory.mktemp("reference")
    run = {"script": str(STOCK), "imports": str(EXAMPLE), "arguments": [], "steps": STEPS}
    run |= {"traces": str(traces), "counts": [1] * 4, "mode": "stock"}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(FORK_RUNS)], input=json.dumps([run]), text=True, check=True, env=environment)
    records = read_records(traces)
    check_reference(records)
    return records


def train(traces: Path, patch: Patch, **options: Any) -> Records:
    """The traces of the elastic script in a forked process with a part of the runtime replaced."""
    child = os.fork()
    if child == 0:
        code = 1
        gc.freeze()  # what was alive before is not looked through at each step for what is alive
        try:
            run_patched(traces, patch, options)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    return read_records(traces)


def run_patched(traces: Path, patch: Patch, options: dict[str, Any]) -> None:
    os.environ |= {"SPRINGTIDE_TRACE_DIR": str(traces), "SPRINGTIDE_MAX_STEPS": str(STEPS)}
    sys.argv = ["train.py"]
    sys.path.insert(0, str(EXAMPLE))
    patch(pytest.MonkeyPatch())
    if options:
        train_with(**options)
    else:
        runpy.run_path(str(EXAMPLE / "train.py"), run_name="__main__")


def train_with(num_workers: int) -> None:
    """The training of the example, with DataLoader workers."""
    parts = runpy.run_path(str(EXAMPLE / "model.py"))
    run = springtide.init(logical_workers=4, seed=0)
    model = parts["Cnn"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer, loader = run.prepare(model, optimizer, parts["Digits"](), batch_size=32, num_workers=num_workers)
    for _ in run.epochs(1):
        for step in loader:
            for images, labels in step:
                torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()


def keep_everything(patch: pytest.MonkeyPatch) -> None:
    """Leave nothing out."""


def share_random_state(patch: pytest.MonkeyPatch) -> None:
    """One random state for all logical workers."""
    patch.setattr(Contexts, "enter", lambda self, worker: None)


def share_buffers(patch: pytest.MonkeyPatch) -> None:
    """One set of buffers that all logical workers write."""
    patch.setattr(Buffers, "begin_turn", lambda self, worker, is_first: setattr(self, "forwards", 0))
    patch.setattr(Buffers, "share", lambda self, group: None)
    patch.setattr(Buffers, "end_walk", lambda self, workers: None)


def keep_first_layout(patch: pytest.MonkeyPatch) -> None:
    """The bucket layout of the first step for all steps."""
    patch.setattr(buckets, "rebuilt_layout", lambda parameters, order: buckets.first_layout(parameters, False))


def add_in_rank_order(patch: pytest.MonkeyPatch) -> None:
    """0 + 1 + 2 + 3 everywhere instead of gloo's ring."""
    patch.setattr(gloo_order, "fold_order", lambda chunk, ranks: tuple(range(ranks)))


def augment_from_the_process(patch: pytest.MonkeyPatch) -> None:
    """Augmentation from whatever random state the loading process has."""
    patch.setattr(Seeded, "seed_for", lambda self, key: None)


# Where each breaks: the step, and how the tensor's name begins. Which parameter moves first is up to the processor.
ABLATIONS = [
    (share_random_state, 1, "loss 0 of logical worker 0"),
    (share_buffers, 1, "buffer features.1.running_mean"),
    (keep_first_layout, 2, "parameter"),
    (add_in_rank_order, 1, "parameter"),
    (augment_from_the_process, 1, "loss 0 of logical worker 0"),
]


def test_with_everything_in_place_every_bit_is_equal(reference: Records, tmp_path: Path) -> None:
    assert find_difference(reference, train(tmp_path, keep_everything)) is None


@pytest.mark.parametrize(("patch", "step", "tensor"), ABLATIONS, ids=[row[0].__name__ for row in ABLATIONS])
def test_without_one_ingredient_equality_breaks(
    patch: Patch,
    step: int,
    tensor: str,
    reference: Records,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    difference = find_difference(reference, train(tmp_path, patch))
    assert difference is not None
    record_property("first_difference", f"step {difference.step}, {difference.tensor}")
    assert difference.step == step
    assert difference.tensor.startswith(tensor)


def test_dataloader_workers_do_not_matter(tmp_path: Path) -> None:
    none = train(tmp_path / "none", keep_everything, num_workers=0)
    two = train(tmp_path / "two", keep_everything, num_workers=2)
    assert find_difference(none, two) is None


def test_augmentation_from_the_dataloader_workers_state_breaks_equality(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    none = train(tmp_path / "none", augment_from_the_process, num_workers=0)
    two = train(tmp_path / "two", augment_from_the_process, num_workers=2)
    difference = find_difference(none, two)
    assert difference is not None
    record_property("first_difference", f"step {difference.step}, {difference.tensor}")
    assert difference == Difference(1, "loss 0 of logical worker 0")
