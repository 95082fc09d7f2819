"""What `save_state` leaves where it is killed, and what `load_state` brings; and what DDP would be told."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.installed import need

import springtide
from springtide.errors import JobError
from springtide.training.run import forget_run

need("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")


class Prepared:
    """A run of two logical workers in this process, prepared and before its first step."""

    def __init__(self, *handlers: Any) -> None:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        from springtide.integrations.accelerate import ElasticAccelerator

        self.run: Any = springtide.init(logical_workers=2)
        self.accelerator = ElasticAccelerator(cpu=True, kwargs_handlers=list(handlers))
        self.model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(self.model, optimizer, loader)

    def train(self, epochs: int, say: Any = None) -> None:
        """Some epochs; `say` is called in each turn."""
        for _ in self.accelerator.epochs(epochs):
            for step in self.loader:
                for (inputs,) in step:
                    if say is not None:
                        say()
                    self.accelerator.backward(self.model(inputs).sum())
                self.optimizer.step()
                self.optimizer.zero_grad()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget_run()


class Killed(BaseException):
    """As a SIGKILL: nothing after it is done."""


def test_a_state_that_was_being_saved_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder had fewer random states than ranks, and `load_state` refused it at every start."""
    import accelerate

    prepared, saved = Prepared(), accelerate.Accelerator.save_state

    def be_killed(self: Any, *given: Any, **named: Any) -> Any:
        if self.process_index == 1:
            raise Killed
        return saved(self, *given, **named)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(accelerate.Accelerator, "save_state", be_killed)
        prepared.accelerator.save_state(str(tmp_path / "last"))
    assert not (tmp_path / "last").exists()
    assert prepared.accelerator.save_state(str(tmp_path / "last")) == tmp_path / "last"
    names = {file.name for file in (tmp_path / "last").iterdir()}
    assert {"random_states_0.pkl", "random_states_1.pkl", "model.safetensors", "optimizer.bin"} <= names
    assert [place.name for place in tmp_path.iterdir()] == ["last"]


def test_a_folder_that_is_saved_again_keeps_what_else_is_in_it(tmp_path: Path) -> None:
    import torch

    prepared, folder = Prepared(), tmp_path / "last"
    prepared.accelerator.save_state(str(folder))
    (folder / "tokenizer.json").write_text("{}")
    before = (folder / "model.safetensors").read_bytes()
    with torch.no_grad():
        prepared.model.weight.zero_()
    prepared.accelerator.save_state(str(folder))
    assert (folder / "model.safetensors").read_bytes() != before
    assert (folder / "tokenizer.json").read_text() == "{}"


def test_a_kill_while_a_folder_is_replaced_leaves_no_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of one state and an optimizer of the other were loaded, and nothing was said."""
    import os

    import torch

    prepared, folder, replace = Prepared(), tmp_path / "last", os.replace

    def put(value: float) -> None:
        prepared.optimizer.param_groups[0]["lr"] = value
        with torch.no_grad():
            prepared.model.weight.fill_(value)

    def be_killed(source: Any, place: Any) -> None:
        if Path(place).name == "optimizer.bin":
            raise Killed
        replace(source, place)

    put(0.25)
    prepared.accelerator.save_state(str(folder))
    put(0.5)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", be_killed)
        prepared.accelerator.save_state(str(folder))
    put(0.75)
    prepared.accelerator.load_state(str(folder))
    assert prepared.model.weight.tolist() == [[0.5, 0.5]]
    assert prepared.optimizer.param_groups[0]["lr"] == 0.5
    assert [place.name for place in tmp_path.iterdir()] == ["last"]


def test_what_a_kill_has_left_of_a_folder_that_was_deleted_since_is_dropped(tmp_path: Path) -> None:
    prepared, folder = Prepared(), tmp_path / "last"
    left = tmp_path / ".last.whole"
    left.mkdir()
    (left / "custom_checkpoint_0.pkl").touch()
    prepared.accelerator.save_state(str(folder))
    assert not (folder / "custom_checkpoint_0.pkl").exists() and not left.exists()


def test_a_run_that_goes_on_asks_nothing_of_a_folder(tmp_path: Path) -> None:
    """The run's own checkpoint is newer than one that a kill has left half written."""
    prepared = Prepared()
    (tmp_path / "random_states_0.pkl").touch()
    with pytest.raises(JobError, match="was saved by 1 ranks, the run has 2"):
        prepared.accelerator.load_state(str(tmp_path))
    prepared.run.saved = {}
    prepared.accelerator.load_state(str(tmp_path))


@pytest.mark.parametrize("name", ["save_state", "load_state"])
def test_a_state_of_all_is_not_saved_or_loaded_in_a_turn(tmp_path: Path, name: str) -> None:
    """It left the contexts, and the rest of the turn drew from the process's own random state."""
    prepared = Prepared()
    act = getattr(prepared.accelerator, name)
    with pytest.raises(JobError, match=rf"accelerator\.{name}\(.*outside `for batch in step:`"):
        prepared.train(1, lambda: act(str(tmp_path / "last")))


def test_epochs_after_a_loaded_state_are_those_that_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that went on at its starting epoch repeated all of them, and was told nothing."""
    prepared = Prepared()
    prepared.accelerator.save_state(str(tmp_path / "last"))
    prepared.accelerator.load_state(str(tmp_path / "last"))
    prepared.train(1)
    said = capsys.readouterr()
    assert "accelerator.epochs(1) trains 1 epochs from there" in said.out + said.err


def test_a_sharded_model_is_not_for_a_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frameworks clip, evaluate and save models as if they were whole."""
    from springtide.integrations.worker_feeds import begin_contexts

    prepared = Prepared()
    monkeypatch.setattr(prepared.run, "sharding", object())
    with pytest.raises(JobError, match=r"run\.fully_shard has sharded was given to Hugging Face"):
        begin_contexts(prepared.run)


def test_what_ddp_would_do_to_gradients_is_refused() -> None:
    """`comm_hook` was dropped without a word; others were called options of a DataLoader."""
    from accelerate.utils import DDPCommunicationHookType, DistributedDataParallelKwargs

    from springtide.integrations.frameworks import find_ddp_options

    hook = DDPCommunicationHookType.BF16
    for named in ({"comm_hook": hook}, {"comm_wrapper": hook}, {"static_graph": True}, {"bucket_cap_mb": 5}):
        with pytest.raises(JobError, match=rf"would be told {next(iter(named))} in an ElasticAccelerator"):
            find_ddp_options(DistributedDataParallelKwargs(**named), "an ElasticAccelerator")
    kept = DistributedDataParallelKwargs(find_unused_parameters=True, gradient_as_bucket_view=True)
    assert find_ddp_options(kept, "it") == {"find_unused_parameters": True}
    assert find_ddp_options(None, "it") == {}


def test_an_accelerator_refuses_a_hook_before_anything_is_trained() -> None:
    from accelerate.utils import DDPCommunicationHookType, DistributedDataParallelKwargs

    with pytest.raises(JobError, match="comm_hook"):
        Prepared(DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.FP16))
