"""The insides of frameworks that adapters stand on, as they were in the versions that were tried."""

import functools
import inspect
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.integrations.installed import need

from springtide.errors import JobError
from springtide.integrations.frameworks import check_versions

pytestmark = pytest.mark.filterwarnings("ignore")


def read_pins() -> dict[str, str]:
    """The versions of constraints.txt."""
    text = (Path(__file__).parents[2] / "constraints.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.M))


ADAPTERS = {"hf": "transformers", "lightning": "lightning", "accelerate": "accelerate"}
IMPORTING = """
import importlib
from springtide.errors import JobError

for adapter in {adapters}:
    try:
        importlib.import_module(f"springtide.integrations.{{adapter}}")
    except JobError as error:
        print(error)
"""


def test_versions_that_were_never_tried_are_refused_before_anything_of_them_is_imported(tmp_path: Path) -> None:
    for package in ADAPTERS.values():
        (tmp_path / f"{package}.py").write_text("raise AssertionError('it was imported')")
        (tmp_path / f"{package}-0.1.dist-info").mkdir()
        (tmp_path / f"{package}-0.1.dist-info" / "METADATA").write_text(f"Name: {package}\nVersion: 0.1\n")
    command = [sys.executable, "-c", IMPORTING.format(adapters=list(ADAPTERS))]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    for package, line in zip(ADAPTERS.values(), said, strict=True):
        assert re.fullmatch(rf"{package} is 0\.1; .* Install it: pip install {package}==\S+", line)


def test_a_framework_that_is_not_installed_is_named_with_the_remedy() -> None:
    with pytest.raises(JobError, match=r"springtide-none is not installed; install it: pip install springtide-none==2"):
        check_versions({"springtide-none": ("1", "2")})


def test_the_trainer_has_the_methods_that_are_derived_from() -> None:
    need("transformers")
    from transformers import Trainer, TrainingArguments, trainer

    from springtide.integrations.hf import TRIED, ElasticTrainer
    from springtide.integrations.hf.trainer_checks import TRIED_PEFT, TRIED_TRL

    pins = read_pins()
    assert {name: tried[-1] for name, tried in (TRIED | TRIED_TRL | TRIED_PEFT).items()} == {
        name: pins[name] for name in TRIED | TRIED_TRL | TRIED_PEFT
    }
    assert version("transformers") in TRIED["transformers"]
    ours = {name for name in vars(ElasticTrainer) if inspect.isfunction(vars(ElasticTrainer)[name])}
    private = {name for name in ours if name.startswith("_") and not name.startswith("__")}
    assert private == {
        "_evaluate",
        "_finalize_training",
        "_get_num_items_in_batch",
        "_init_training_state",
        "_load_rng_state",
        "_maybe_log_save_evaluate",
        "_prepare_for_training",
        "_run_epoch",
        "_save_rng_state",
        "_track_num_input_tokens",
    }
    assert all(hasattr(Trainer, name) for name in private)
    assert {"epoch", "resume_from_checkpoint", "epochs_trained", "steps_trained_in_current_epoch"} <= set(
        inspect.signature(Trainer._run_epoch).parameters
    )
    assert trainer.skip_first_batches and trainer.EvalLoopContainer
    assert "skip_scheduler=True" in inspect.getsource(Trainer._inner_training_loop)  # of eval_on_start alone
    assert isinstance(vars(TrainingArguments)["_setup_devices"], functools.cached_property)


def test_lightning_has_the_strategies_that_are_derived_from() -> None:
    need("lightning")
    from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
    from lightning.pytorch.strategies import StrategyRegistry
    from lightning.pytorch.strategies.strategy import _ForwardRedirection

    from springtide.integrations.lightning import TRIED

    assert version("lightning") in TRIED["lightning"] and read_pins()["lightning"] == TRIED["lightning"][-1]
    assert "springtide" in StrategyRegistry.available_strategies()
    assert "on_train_batch_start" in inspect.getsource(_TrainingEpochLoop.advance)
    assert list(inspect.signature(_ForwardRedirection.__call__).parameters)[1:4] == [
        "wrapper_module",
        "original_module",
        "method_name",
    ]


def test_lightning_has_the_private_names_that_are_used() -> None:
    need("lightning")
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.trainer import call

    from springtide.integrations.lightning.loop_memory import FLAGS, list_loops

    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    assert all(
        hasattr(LightningModule, name) for name in ("_on_before_batch_transfer", "_apply_batch_transfer_handler")
    )
    assert all(hasattr(call, name) for name in ("_call_callbacks_state_dict", "_call_callbacks_load_state_dict"))
    assert hasattr(Trainer, "_results") and trainer.fit_loop._data_fetcher is None
    assert trainer.fit_loop.epoch_loop._results == {} and LightningModule()._param_requires_grad_state == {}
    assert trainer.fit_loop._combined_loader is None and trainer.fit_loop.epoch_loop.val_loop._combined_loader is None
    found = {name for loop in list_loops(trainer.fit_loop) for name in FLAGS if hasattr(loop, name)}
    assert found == set(FLAGS)


def test_accelerate_has_the_private_names_that_are_used() -> None:
    need("accelerate")
    import torch
    from accelerate.data_loader import prepare_data_loader
    from accelerate.state import AcceleratorState, GradientState, PartialState

    from springtide.integrations.accelerate import TRIED

    assert version("accelerate") in TRIED["accelerate"] and read_pins()["accelerate"] == TRIED["accelerate"][-1]
    assert list(inspect.signature(GradientState._set_sync_gradients).parameters) == ["self", "sync_gradients"]
    assert {"num_processes", "process_index", "local_process_index"} <= PartialState(cpu=True)._shared_state.keys()
    assert PartialState._shared_state is not AcceleratorState._shared_state
    loader: Any = torch.utils.data.DataLoader(range(10), batch_size=2, drop_last=True)  # type: ignore[arg-type]
    shard = prepare_data_loader(loader, num_processes=4, process_index=0)
    assert shard._drop_last and shard.total_batch_size == 8 and shard.base_dataloader.collate_fn
    assert shard.device is None and not shard._non_blocking


def test_a_call_is_left_where_it_asks_and_gone_on_with() -> None:
    need("lightning")
    from springtide.integrations.lightning.turn_threads import TurnThread

    said = []

    def call() -> int:
        said.append(thread.ask("first"))
        return int(thread.ask("second"))

    thread = TurnThread(call)
    thread.go_on()
    assert (thread.asked, said, thread.has_ended) == ("first", [], False)
    thread.answer = "one"
    thread.go_on()
    assert (thread.asked, said) == ("second", ["one"])
    thread.answer = "2"
    thread.go_on()
    assert thread.has_ended and thread.result == 2


def test_callbacks_that_save_go_on_in_their_folder(tmp_path: Path) -> None:
    """In a logger's next version `ModelCheckpoint` forgot which model was the best until then."""
    need("lightning")
    from lightning.pytorch.callbacks import ModelCheckpoint

    from springtide.integrations.lightning.loop_memory import LoopMemory

    before, after = (ModelCheckpoint(tmp_path / name, monitor="held") for name in ("version_0", "version_1"))
    (tmp_path / "version_0").mkdir()
    before.best_model_score, before.best_k_models = 0.5, {"best.ckpt": 0.5}
    states = {before.state_key: before.state_dict()}
    run = SimpleNamespace(settings=SimpleNamespace(joining=False), exchange=lambda own: [own])
    LoopMemory(SimpleNamespace(callbacks=[after]), run).go_on_in_folders(states)
    after.load_state_dict(states[before.state_key])
    assert (after.dirpath, after.best_model_score) == (before.dirpath, 0.5)
    gone = ModelCheckpoint(tmp_path / "elsewhere", monitor="held")
    LoopMemory(SimpleNamespace(callbacks=[gone]), run).go_on_in_folders({gone.state_key: {"dirpath": "/nowhere"}})
    assert gone.dirpath == str(tmp_path / "elsewhere")
    run.exchange = lambda own: [["first"], own]
    LoopMemory(SimpleNamespace(callbacks=[gone]), run).share_folders()
    assert gone.dirpath == "first"


def test_how_far_to_train_the_arguments_say_in_a_job_that_is_started_again() -> None:
    """A checkpoint's own `max_steps` ended a job that was given more steps where it would have ended before."""
    need("transformers")
    from transformers.trainer_callback import TrainerControl, TrainerState

    from springtide.integrations.hf.trainer_memory import TrainerMemory

    def make(max_steps: int, step: int) -> Any:
        handler = SimpleNamespace(callbacks=[])
        state = TrainerState(max_steps=max_steps, num_train_epochs=max_steps, global_step=step)
        return SimpleNamespace(state=state, control=TrainerControl(), callback_handler=handler)

    before, after = make(4, 3), make(9, 0)
    saved = TrainerMemory(before).state_dict()
    TrainerMemory(after).load_state_dict(saved)
    assert (after.state.max_steps, after.state.num_train_epochs, after.state.global_step) == (9, 9, 3)


def make_turn(worker: int | None) -> Any:
    """A run of two processes in a worker's turn, or in none, which counts its exchanges."""
    run: Any = SimpleNamespace(prepared=True, rank=1, logical_workers=3, group=object(), exchanges=0)
    run.device = torch.device("cpu")
    run.turns = SimpleNamespace(worker=worker)

    def exchange(own: list[Any]) -> list[list[Any]]:
        run.exchanges += 1
        return [["first's"], own]

    run.exchange = exchange
    return run


def test_nobody_is_waited_for_in_a_turn() -> None:
    """Processes with two turns and with one waited for each other in `trainer.log_dir` or `fabric.barrier()`."""
    need("lightning")
    from springtide.integrations.lightning.elastic_fabric import ElasticFabric
    from springtide.integrations.lightning.elastic_strategy import ElasticStrategy

    for kind in (ElasticStrategy, ElasticFabric):
        run = make_turn(None)
        strategy = kind(run)
        strategy.barrier()
        assert (strategy.broadcast("own"), run.exchanges) == ("first's", 2)
        run.turns.worker = 2
        strategy.barrier()
        assert run.exchanges == 2
    assert ElasticStrategy(run).broadcast("own") == "own"
    with pytest.raises(JobError, match=r"fabric\.broadcast in a logical worker's turn: .* before the loop"):
        strategy.broadcast("own")
    assert run.exchanges == 2


class ThreeTurns:
    """A step of a run with the turns of logical workers 0, 1 and 2."""

    index = number = 0

    def __init__(self, run: Any) -> None:
        self.run = run

    def __iter__(self) -> Any:
        for worker in range(3):
            self.run.turns.worker = worker
            self.worker = SimpleNamespace(rank=worker)
            yield
        self.run.turns.worker = None


def test_fabric_logs_once_and_goes_on_where_the_first_process_is_another() -> None:
    """Every worker's turn wrote a row of its own, and a process that became the first wrote none."""
    need("lightning")
    from lightning.fabric.utilities.rank_zero import rank_zero_only

    from springtide.integrations.lightning.elastic_fabric import ElasticFabric
    from springtide.integrations.updates import ElasticUpdates, UpdateLoader

    before = rank_zero_only.rank
    run = make_turn(None)
    run.position, run.in_epoch = SimpleNamespace(epoch=0, step_in_epoch=0), True
    strategy = ElasticFabric(run)
    feed = SimpleNamespace(take=lambda: [])
    feeds: Any = SimpleNamespace(follow=lambda epoch, taken: None, feeds=[feed] * 3)
    strategy.updates = ElasticUpdates(strategy, [ThreeTurns(run), ThreeTurns(run)], feeds)
    loader = UpdateLoader([None, None], 1, strategy.walk_updates)
    seen = []
    try:
        for step in loader:
            seen.append(rank_zero_only.rank)
            seen += [rank_zero_only.rank for _ in step]
            seen.append(rank_zero_only.rank)
            run.rank = 0  # by a rescale at the boundary
    finally:
        rank_zero_only.rank = before
    assert seen == [1, 0, 1, 2, 1, 0, 0, 1, 2, 0]


def test_a_turn_that_fails_leaves_the_process_its_rank() -> None:
    """Callbacks that hear of the failure save and log where the process is the first."""
    need("lightning")
    from lightning.pytorch.utilities.rank_zero import rank_zero_only

    from springtide.integrations.lightning.elastic_strategy import ElasticStrategy

    before = rank_zero_only.rank
    run = make_turn(None)
    strategy = ElasticStrategy(run)
    try:
        with pytest.raises(KeyError, match="lost") as failure, strategy.show_turns():
            for _ in ThreeTurns(run):
                strategy.set_world_ranks()
                if run.turns.worker == 2:
                    raise KeyError("lost")
        assert (failure.type, rank_zero_only.rank) == (KeyError, 1)
    finally:
        rank_zero_only.rank = before
