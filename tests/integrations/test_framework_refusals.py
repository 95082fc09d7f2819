"""What an adapter cannot keep is refused by name, before anything is trained."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integrations.installed import need

import springtide
from springtide.errors import JobError
from springtide.training.run import forget_run

need("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def args(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import TrainingArguments

    return TrainingArguments(output_dir=str(tmp_path_factory.mktemp("out")), use_cpu=True, report_to=[])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("deepspeed", "ds.json"),
        ("fsdp", "full_shard"),
        ("auto_find_batch_size", True),
        ("ddp_bucket_cap_mb", 5),
        ("ignore_data_skip", True),
        ("batch_eval_metrics", True),
        ("fp16", True),
        ("train_sampling_strategy", "batch_rebalance"),
        ("sync_ref_model", True),
        ("precompute_ref_log_probs", True),
    ],
)
def test_arguments_are_refused_by_name(args: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    from springtide.integrations.hf.trainer_checks import check_arguments

    check_arguments(args)
    monkeypatch.setattr(args, name, value, raising=False)  # some are of TRL's own arguments
    with pytest.raises(JobError, match=name):
        check_arguments(args)


def test_a_callback_that_steps_the_optimizer_is_refused() -> None:
    from transformers import TrainerCallback

    from springtide.integrations.hf.trainer_checks import check_callbacks

    class Innocent(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            assert kwargs["optimizer"].param_groups and state.global_step

    class Stepper(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            kwargs["optimizer"].step()

    check_callbacks([Innocent()])
    with pytest.raises(JobError, match="callback Stepper steps the optimizer"):
        check_callbacks([Stepper()])


def test_trainers_of_trl_that_need_all_ranks_at_once_are_refused() -> None:
    need("trl")
    import trl

    from springtide.integrations import hf
    from springtide.integrations.hf.trainer_checks import check_callbacks, check_kind

    for kind in (hf.ElasticSeq2SeqTrainer, hf.ElasticSFTTrainer, hf.ElasticDPOTrainer, hf.ElasticRewardTrainer):
        check_kind(kind)
    for name in ("KTOTrainer", "GRPOTrainer", "RLOOTrainer", "DistillationTrainer"):
        kind = type("Mine", (hf.ElasticTrainer, getattr(trl, name)), {})
        with pytest.raises(JobError, match=rf"{name} of TRL in an elastic Trainer: .* SFTTrainer, DPOTrainer"):
            check_kind(kind)
    with pytest.raises(JobError, match=r"callback BEMACallback .* weights of its own"):
        check_callbacks([trl.BEMACallback()])

    class Mine(trl.BEMACallback):
        """One that is derived from it."""

    with pytest.raises(JobError, match=r"callback Mine .* weights of its own"):
        check_callbacks([Mine()])


def test_versions_of_trl_and_peft_are_refused_whoever_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """`class Mine(ElasticTrainer, trl.SFTTrainer)` and a PeftModel come without an adapter of ours."""
    need("trl")
    import torch
    import trl
    from peft import LoraConfig, get_peft_model, inject_adapter_in_model

    from springtide.integrations import hf
    from springtide.integrations.hf import trainer_checks

    layers = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model = get_peft_model(layers, LoraConfig(target_modules=["0"]))
    kind = type("Mine", (hf.ElasticTrainer, trl.SFTTrainer), {})
    trainer_checks.check_kind(kind)
    trainer_checks.check_model(model)
    monkeypatch.setattr(trainer_checks, "TRIED_TRL", {"trl": ("0.1",)})
    monkeypatch.setattr(trainer_checks, "TRIED_PEFT", {"peft": ("0.2",)})
    trainer_checks.check_kind(hf.ElasticTrainer)
    injected = torch.nn.Sequential(torch.nn.Linear(2, 2))
    trainer_checks.check_model(injected)
    with pytest.raises(JobError, match=r"trl is .* tried with 0\.1 only"):
        trainer_checks.check_kind(kind)
    inject_adapter_in_model(LoraConfig(target_modules=["0"]), injected)
    for adapted in (model, injected):
        with pytest.raises(JobError, match=r"peft is .* tried with 0\.2 only"):
            trainer_checks.check_model(adapted)


BEGINNING = "import os, springtide; springtide.init(logical_workers=2); "
ACCELERATOR = "from springtide.integrations.accelerate import ElasticAccelerator; ElasticAccelerator({})"
TRAINER = (
    "from transformers import TrainingArguments; from springtide.integrations.hf import ElasticTrainer; "
    "args = TrainingArguments(use_cpu=True, report_to=[]); {}; ElasticTrainer(args=args)"
)
POSITIONAL = "True, False, 'no', 1, True, None, None, __import__('accelerate').FullyShardedDataParallelPlugin()"


@pytest.mark.parametrize(
    ("code", "variable", "said"),
    [
        (ACCELERATOR.format("cpu=True"), "ACCELERATE_USE_FSDP", "fsdp"),
        (ACCELERATOR.format("cpu=True"), "ACCELERATE_USE_DEEPSPEED", "deepspeed"),
        (ACCELERATOR.format("cpu=True"), "ACCELERATE_USE_MEGATRON_LM", "megatron_lm"),
        (ACCELERATOR.format("cpu=True"), "ACCELERATE_USE_PARALLELISM_CONFIG", "parallelism_config"),
        (ACCELERATOR.format(POSITIONAL), "", "fsdp"),
        (TRAINER.format("pass"), "ACCELERATE_USE_FSDP", "fsdp"),
        (TRAINER.format("os.environ['ACCELERATE_USE_MEGATRON_LM'] = 'true'"), "", "megatron_lm"),
    ],
    ids=["fsdp", "deepspeed", "megatron", "parallelism", "by position", "trainer fsdp", "trainer megatron"],
)
def test_what_shards_by_itself_is_refused_however_it_was_given(
    tmp_path: Path, code: str, variable: str, said: str
) -> None:
    """As `accelerate launch` sets it; the state of one process on a CPU has none of it."""
    need("accelerate")
    environ = {**os.environ, "ACCELERATE_USE_CPU": "true", **({variable: "true"} if variable else {})}
    command = [sys.executable, "-c", BEGINNING + code]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert f"has configured {said}, which shards or reduces by itself" in done.stderr, done.stderr[-1000:]


def test_what_is_gathered_before_training_is_gathered() -> None:
    """An evaluation before the first step has no turn yet, and none of a run's turns."""
    import torch
    from accelerate import Accelerator

    from springtide.integrations.hf.trainer_checks import watch_gathers

    accelerator = Accelerator(cpu=True)
    run = springtide.init(logical_workers=2)
    try:
        watch_gathers(accelerator, run)
        assert accelerator.gather_for_metrics(torch.ones(2)).tolist() == [1.0, 1.0]
        assert accelerator.reduce(torch.ones(2)).tolist() == [1.0, 1.0]
    finally:
        forget_run()


def test_a_model_is_not_chosen_by_what_one_process_has_seen() -> None:
    from springtide.integrations.hf.trainer_checks import check_best_metric

    for best in (None, "loss", "accuracy"):
        check_best_metric(best, {"eval_mean_token_accuracy", "epoch"})
    for best in ("mean_token_accuracy", "eval_mean_token_accuracy"):
        with pytest.raises(JobError, match=f"metric_for_best_model='{best}' .* Use 'eval_loss'"):
            check_best_metric(best, {"eval_mean_token_accuracy", "epoch"})


def test_a_version_that_was_never_tried_is_refused() -> None:
    from springtide.integrations.frameworks import check_versions

    with pytest.raises(JobError, match=r"transformers is 5\.22\.2; .* was tried with 4\.0 only"):
        check_versions({"transformers": ("4.0",)})


def test_checkpoints_of_other_numbers_of_ranks_are_refused(tmp_path: Path) -> None:
    from springtide.integrations.hf.trainer_checks import check_checkpoint

    with pytest.raises(JobError, match="no trainer_state"):
        check_checkpoint(tmp_path, 4)
    (tmp_path / "trainer_state.json").write_text("{}")
    for rank in range(4):
        (tmp_path / f"rng_state_{rank}.pth").touch()
    check_checkpoint(tmp_path, 4)
    with pytest.raises(JobError, match="saved by 4 ranks, the run has 2"):
        check_checkpoint(tmp_path, 2)
    (tmp_path / "rng_state.pth").touch()
    with pytest.raises(JobError, match="several world sizes"):
        check_checkpoint(tmp_path, 4)


def test_iterable_data_are_refused() -> None:
    import torch
    from accelerate.data_loader import prepare_data_loader

    from springtide.integrations.accelerate_data import check_shard
    from springtide.integrations.lightning.sampled_data import SampledData

    class Endless(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(10))

    class Counted(Endless):
        def __len__(self) -> int:
            return 10

    listed: Any = torch.utils.data.DataLoader(range(10), batch_size=2)  # type: ignore[arg-type]
    check_shard(prepare_data_loader(listed, num_processes=4, process_index=0))
    for data, said in (
        (Endless(), r"\(Endless\) are .* without a length"),
        (Counted(), r"\(Counted\) .* has a length"),
    ):
        with pytest.raises(JobError, match=said):
            check_shard(prepare_data_loader(torch.utils.data.DataLoader(data), num_processes=4, process_index=0))
        with pytest.raises(JobError, match=said):
            SampledData(torch.utils.data.DataLoader(data), 0)


@pytest.mark.parametrize("name", ["deepspeed_plugin", "fsdp_plugin", "megatron_lm_plugin", "parallelism_config"])
def test_plugins_of_an_accelerator_that_shard_by_themselves_are_refused(name: str) -> None:
    from springtide.integrations.accelerate.elastic_accelerator import check_options

    check_options({"cpu": True, name: None, "mixed_precision": "bf16"})
    with pytest.raises(JobError, match=rf"ElasticAccelerator\({name}=...\): it shards or reduces by itself"):
        check_options({name: object()})
    with pytest.raises(JobError, match=r"fp16.*use bf16"):
        check_options({"mixed_precision": "fp16"})


def test_what_lightning_would_cut_or_count_otherwise_is_refused() -> None:
    import torch
    from lightning.pytorch import Trainer

    from springtide.integrations.lightning.elastic_strategy import count_steps
    from springtide.integrations.lightning.sampled_data import SampledData

    listed: Any = torch.utils.data.DataLoader(range(10), batch_size=2)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="have no DistributedSampler: a batch sampler of your own"):
        SampledData(listed, 0)
    quiet: Any = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    assert count_steps(Trainer(max_epochs=3, max_steps=20, **quiet), 5) == 15
    with pytest.raises(JobError, match=r"max_epochs=-1.*must be known"):
        count_steps(Trainer(max_epochs=-1, **quiet), 5)


@pytest.mark.parametrize(
    "name", ["StochasticWeightAveraging", "EMAWeightAveraging", "GradientAccumulationScheduler", "LearningRateFinder"]
)
def test_callbacks_of_lightning_that_train_or_average_are_refused(name: str) -> None:
    need("lightning")
    from lightning.pytorch import callbacks

    from springtide.integrations.lightning.lightning_checks import check_callbacks

    given: dict[str, Any] = {
        "StochasticWeightAveraging": {"swa_lrs": 0.1},
        "GradientAccumulationScheduler": {"scheduling": {0: 1, 2: 2}},
    }
    check_callbacks([callbacks.EarlyStopping("held"), callbacks.ModelCheckpoint(), callbacks.Timer()])
    with pytest.raises(JobError, match=rf"callback {name} in an elastic run: "):
        check_callbacks([getattr(callbacks, name)(**given.get(name, {}))])


def test_the_package_of_lightnings_older_name_is_refused() -> None:
    """It said that there is no such strategy, and that what there is are strategies of its own."""
    need("lightning")
    need("pytorch_lightning")
    import springtide.integrations.lightning

    older = pytest.importorskip("pytorch_lightning")
    springtide.init(logical_workers=2)
    try:
        with pytest.raises(JobError, match=r"write `import lightning\.pytorch as pl` in place of"):
            older.Trainer(accelerator="cpu", devices=2, strategy="springtide")
    finally:
        forget_run()


def test_a_callback_of_lightning_that_steps_the_optimizer_is_refused() -> None:
    need("lightning")
    from lightning.pytorch import Callback

    from springtide.integrations.lightning.lightning_checks import check_callbacks

    class Innocent(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            assert trainer.optimizers[0].param_groups and trainer.global_step

    class Stepper(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            trainer.optimizers[0].step()

    check_callbacks([Innocent()])
    with pytest.raises(JobError, match="callback Stepper steps the optimizer"):
        check_callbacks([Stepper()])


def test_a_module_that_is_asked_in_the_middle_of_the_turns_is_refused() -> None:
    """Its forward in the turns after the first would read what it has counted there."""
    need("lightning")
    from lightning.pytorch import LightningModule

    from springtide.integrations.lightning.lightning_checks import check_module

    class Counting(LightningModule):
        def on_before_zero_grad(self, optimizer: Any) -> None:
            self.count = 1

    module = Counting()
    check_module(LightningModule())
    with pytest.raises(JobError, match=r"Counting overrides on_before_zero_grad .* Count in on_train_batch_end"):
        check_module(module)
    module.automatic_optimization = False  # where Lightning does not call it
    check_module(module)


def test_a_checkpoint_of_lightning_is_no_place_to_go_on_from() -> None:
    need("lightning")
    from springtide.integrations.lightning.lightning_checks import check_resumed

    check_resumed(None)
    with pytest.raises(JobError, match=r"fit\(ckpt_path='mid.ckpt'\) in an elastic run: .* load_from_checkpoint"):
        check_resumed("mid.ckpt")


def test_functions_of_accelerate_are_refused_to_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They gave back what this process has; whoever imported one before the run was begun called it all the same."""
    need("accelerate")
    import torch
    from accelerate.state import PartialState
    from accelerate.utils import gather, gather_object, operations, reduce

    from springtide.integrations.accelerate_gathers import watch_functions

    monkeypatch.setattr(operations, "PartialState", PartialState)  # put back afterwards
    PartialState(cpu=True)
    run = springtide.init(logical_workers=2)
    try:
        watch_functions(run)
        assert gather(torch.ones(2)).tolist() == [1.0, 1.0]  # nothing is elastic yet
        run.prepared = True
        for function in (gather, gather_object, reduce):
            with pytest.raises(JobError, match=rf"accelerate\.utils\.{function.__name__} in an elastic run"):
                function([torch.ones(2)])
    finally:
        forget_run()


def test_a_batch_is_not_read_where_there_is_none() -> None:
    need("lightning")
    from springtide.integrations.lightning.elastic_strategy import BatchPlaceholder

    batch: Any = BatchPlaceholder()
    with pytest.raises(JobError, match=r"batch\[0\] in a hook .* Read it in training_step"):
        _inputs, _targets = batch
    with pytest.raises(JobError, match=r"batch\.shape in a hook"):
        _ = batch.shape


def test_what_a_process_would_lose_of_a_list_is_refused() -> None:
    """On fewer processes than logical workers, parts of a list that is cut for N ranks have nobody."""
    need("accelerate")
    from springtide.integrations.accelerate import ElasticAccelerator

    springtide.init(logical_workers=2)
    try:
        accelerator = ElasticAccelerator(cpu=True)
        with (
            pytest.raises(JobError, match=r"split_between_processes in an elastic run: .* would be lost"),
            accelerator.split_between_processes([1, 2, 3]) as part,
        ):
            assert part
        with pytest.raises(JobError, match="pad_across_processes in an elastic run"):
            accelerator.pad_across_processes([])
    finally:
        forget_run()


def test_values_of_ranks_are_padded_as_accelerate_pads_them() -> None:
    need("accelerate")
    import torch

    from springtide.integrations.eval_rounds import Padding

    values = [torch.ones(2, 1), torch.ones(2, 3)]
    after, before = (Padding(1, -100, is_first).pad(values)[0].tolist() for is_first in (False, True))
    assert (after, before) == ([[1, -100, -100]] * 2, [[-100, -100, 1]] * 2)
    assert [one.shape for one in Padding(5, 0, False).pad(values)] == [(2, 1), (2, 3)]


def test_a_trainer_needs_a_run_first(args: Any) -> None:
    from springtide.integrations.hf import ElasticTrainer

    with pytest.raises(JobError, match=r"ElasticTrainer was made before the run; call springtide\.init"):
        ElasticTrainer(args=args)


@pytest.mark.slow
def test_nothing_is_trained_before_bad_input_is_refused(tmp_path: Path) -> None:
    """Scripts as users write them, up to `train()`: each is refused in a sentence, and no weight has moved."""
    need("lightning")
    script = Path(__file__).parent / "scripts" / "bad_input_workload.py"
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = re.findall(r"^SAID (.*)$", done.stdout, re.M)
    result = json.loads(line)
    expected = {
        "hf fsdp": "TrainingArguments(fsdp=True) in an elastic Trainer",
        "hf auto_find_batch_size": "TrainingArguments(auto_find_batch_size=True) in an elastic Trainer",
        "hf callback": "callback Stepper steps the optimizer",
        "hf stream": "(Stream) are an IterableDataset without a length",
        "hf checkpoint": "runs of several world sizes have written there",
        "accelerate fsdp": "ElasticAccelerator(fsdp_plugin=...): it shards or reduces by itself",
        "accelerate stream": "(Stream) are an IterableDataset without a length",
        "lightning stream": "(Stream) are an IterableDataset without a length",
        "lightning no end": "Trainer(max_epochs=-1) in an elastic run",
        "lightning callback": "callback LightningStepper steps the optimizer",
        "lightning cut": "limit_train_batches and overfit_batches in an elastic run",
    }
    assert result["said"].keys() == expected.keys()
    assert [name for name, words in expected.items() if words not in result["said"][name]] == []
    assert result["untouched"]


@pytest.mark.parametrize(
    ("precision", "plugin", "said"),
    [
        ("fp16", {}, "fp16.*use bf16"),
        ("bf16", {"sync_with_dataloader": False}, r"GradientAccumulationPlugin\(sync_with_dataloader=False\)"),
        ("no", {"sync_each_batch": True}, r"GradientAccumulationPlugin\(sync_each_batch=True\) .* must be False"),
    ],
)
def test_what_an_accelerator_was_told_in_other_ways_is_refused(
    precision: str, plugin: dict[str, bool], said: str
) -> None:
    """By position, in a plugin, in accelerate's configuration or by the environment."""
    need("accelerate")
    from springtide.integrations.accelerate.elastic_accelerator import check_settings

    state = SimpleNamespace(plugin_kwargs={"num_steps": 2, "sync_with_dataloader": True})
    check_settings(SimpleNamespace(mixed_precision="bf16", gradient_state=state))
    state.plugin_kwargs.update(plugin)
    with pytest.raises(JobError, match=said):
        check_settings(SimpleNamespace(mixed_precision=precision, gradient_state=state))


def test_what_is_trained_and_prepared_late_is_refused() -> None:
    need("accelerate")
    import torch

    from springtide.integrations.accelerate.elastic_accelerator import refuse_late

    model, frozen = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters())
    refuse_late((frozen, torch.utils.data.DataLoader([1])))  # type: ignore[arg-type]
    for part in (model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1)):
        with pytest.raises(JobError, match=rf"given a {type(part).__name__} after the optimizer .* one accelerator"):
            refuse_late((part,))


def test_a_rank_in_a_seed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    need("accelerate")
    import torch
    from accelerate.state import AcceleratorState
    from accelerate.utils import random, set_seed

    from springtide.integrations.accelerate import ElasticAccelerator
    from springtide.integrations.worker_feeds import begin_contexts

    monkeypatch.setattr(random, "AcceleratorState", AcceleratorState)  # put back afterwards
    springtide.init(logical_workers=2)
    try:
        ElasticAccelerator(cpu=True)
        set_seed(3)
        with pytest.raises(JobError, match=r"set_seed\(\.\.\., device_specific=True\) in an elastic run"):
            set_seed(3, device_specific=True)
    finally:
        forget_run()
    contexts = SimpleNamespace(states={})
    run: Any = SimpleNamespace(saved=None, sharding=None, local=[0, 1], turns=SimpleNamespace(contexts=contexts))
    run.exchange = lambda own: [own, own]
    begin_contexts(run)
    assert torch.equal(contexts.states[1].cpu, torch.default_generator.get_state())
    run.exchange = lambda own: [own, [own[0] + 1]]
    with pytest.raises(JobError, match="different random states of torch before the first step"):
        begin_contexts(run)


def test_weights_of_a_ranks_own_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate's LocalSGD switches itself off on one process, and trained something else without a word."""
    need("accelerate")
    import torch
    from accelerate.local_sgd import LocalSGD

    from springtide.integrations.accelerate import ElasticAccelerator

    monkeypatch.setattr(LocalSGD, "__init__", LocalSGD.__init__)  # put back afterwards
    springtide.init(logical_workers=2)
    try:
        accelerator = ElasticAccelerator(cpu=True)
        assert not LocalSGD(accelerator, torch.nn.Linear(1, 1), 4, enabled=False).enabled
        with pytest.raises(JobError, match=r"LocalSGD\(local_sgd_steps=4\) in an elastic run"):
            LocalSGD(accelerator, torch.nn.Linear(1, 1), 4)
    finally:
        forget_run()


def test_half_precision_with_a_scaled_loss_is_refused_under_lightning() -> None:
    need("lightning")
    from lightning.fabric.plugins.precision import MixedPrecision

    from springtide.integrations.lightning.lightning_checks import check_precision

    check_precision(MixedPrecision("bf16-mixed", "cpu"))
    with pytest.raises(JobError, match=r"precision='16-mixed' in an elastic run: .* use 'bf16-mixed'"):
        check_precision(MixedPrecision("16-mixed", "cuda"))


def test_parts_of_fabric_are_set_up_before_its_first_loader() -> None:
    need("lightning")
    from springtide.integrations.lightning.elastic_fabric import ElasticFabric

    strategy = ElasticFabric(SimpleNamespace(logical_workers=2, rank=0))
    strategy.setup_module("first")
    strategy.setup_module("second")
    assert strategy.parts == ["first", "second"]
    strategy.updates = SimpleNamespace()  # type: ignore[assignment]
    with pytest.raises(JobError, match=r"given a str after fabric\.setup_dataloaders"):
        strategy.setup_optimizer("late")


def test_gradients_of_fabric_are_held_back_within_an_update_only() -> None:
    need("lightning")
    import contextlib

    from springtide.integrations.lightning.elastic_fabric import ElasticFabric

    held: list[Any] = []

    @contextlib.contextmanager
    def hold(numbers: list[int]) -> Any:
        held.append(numbers)
        yield

    turns = SimpleNamespace(hold=hold)
    strategy = ElasticFabric(
        SimpleNamespace(logical_workers=2, rank=0, turns=turns, models=["one", "other"]), accumulate=2
    )
    control = strategy._backward_sync_control
    with control.no_backward_sync("other", enabled=False):
        assert held == []
    with pytest.raises(JobError, match=r"no_backward_sync at the last batch .* have 2 .*accumulate=N"):
        control.no_backward_sync("other", enabled=True)
    strategy.tell_more(True)
    with control.no_backward_sync("other", enabled=True):
        assert held == [[1]]
