"""What callbacks remember: weights of their own are refused, numbers that a resume loses are named."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from springtide.errors import JobError
from springtide.integrations import callback_memory
from springtide.integrations.callback_memory import CallbackMemory
from springtide.training.state.script.loop_variables import CALLED, find_lost, read_carried


@pytest.fixture(autouse=True)
def forget_callbacks() -> Any:
    yield
    CALLED.clear()


class Averager:
    """A callback with an average of the weights, in one of several forms."""

    def __init__(self, model: torch.nn.Module, form: str) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.count = 0
        self.first_batch = torch.zeros(3)
        self._shadow: Any = {name: one.detach().clone() for name, one in model.named_parameters()}
        if form == "module":
            self._shadow = torch.nn.Linear(2, 2)
        elif form == "list":
            self._shadow = list(self._shadow.values())

    def update(self) -> None:
        """What it does after a step."""
        self.count += 1
        kept = self._shadow
        tensors = kept.parameters() if isinstance(kept, torch.nn.Module) else getattr(kept, "values", lambda: kept)()
        with torch.no_grad():
            for one in tensors:
                one.mul_(0.9)

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self._shadow}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self._shadow = saved["shadow"]


def train(run: Any, averager: Averager, changes: bool) -> None:
    """Steps with a callback between them."""
    memory = CallbackMemory(run, [averager], [])
    for _ in range(6):
        memory.look()
        with torch.no_grad():
            run.models[0].weight.add_(1.0)
        if changes:
            averager.update()


@pytest.mark.parametrize("form", ["module", "dict", "list"])
def test_weights_of_a_callbacks_own_are_refused(form: str) -> None:
    model = torch.nn.Linear(2, 2)
    run = SimpleNamespace(models=[model], kept={})
    train(run, Averager(model, form), changes=False)  # the model and its optimizer are the run's
    with pytest.raises(JobError, match=r"Averager changes its attribute '_shadow', .* run\.keep\(shadow=\.\.\.\)"):
        train(run, Averager(model, form), changes=True)


@pytest.mark.parametrize("every", [1, 2])
def test_an_average_that_begins_late_is_refused(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """It was not looked for after the fiftieth update; what changes now and then does not stop a run."""
    monkeypatch.setattr(callback_memory, "PARTS", 0)
    model = torch.nn.Linear(2, 2)
    averager = Averager(model, "dict")
    memory = CallbackMemory(SimpleNamespace(models=[model], kept={}), [averager], [])

    def go_on() -> None:
        for number in range(100):
            memory.look()
            if number >= 60 and number % every == 0:
                averager.update()

    if every == 2:
        go_on()
    else:
        with pytest.raises(JobError, match="Averager changes its attribute '_shadow'"):
            go_on()


def test_what_the_run_keeps_is_no_loss() -> None:
    model = torch.nn.Linear(2, 2)
    averager = Averager(model, "dict")
    train(SimpleNamespace(models=[model], kept={"average": averager}), averager, changes=True)


def test_a_trainers_own_attributes_and_data_are_left_alone() -> None:
    class Own:
        """A trainer of the script's."""

        def __init__(self) -> None:
            self.train_dataset = [torch.zeros(2)]
            self._results = torch.zeros(2)
            self.centre = torch.zeros(2)

    trainer = Own()
    memory = CallbackMemory(SimpleNamespace(models=[], kept={}), [], [trainer])
    for _ in range(5):
        memory.look()
        trainer.train_dataset[0] += 1
        trainer._results += 1
    with pytest.raises(JobError, match=r"Own changes its attribute 'centre'"):
        for _ in range(5):
            memory.look()
            trainer.centre += 1


def test_numbers_that_a_callback_has_counted_are_named_where_they_are_lost() -> None:
    model = torch.nn.Linear(2, 2)
    averager = Averager(model, "dict")
    CallbackMemory(SimpleNamespace(models=[model], kept={}), [averager], [])
    averager.update()
    before = read_carried()
    assert before["count of Averager"] == "1"
    averager.count = 0
    assert find_lost(before) == ["count of Averager was 1 and is 0"]


def test_a_module_is_told_to_have_a_buffer() -> None:
    class Centred(torch.nn.Module):
        """A module with a tensor that is no buffer."""

        def __init__(self) -> None:
            super().__init__()
            self.centre = torch.zeros(2)

    module = Centred()
    memory = CallbackMemory(SimpleNamespace(models=[module], kept={}), [], [module])
    with pytest.raises(JobError, match=r"Centred changes its attribute 'centre', .* self\.register_buffer\('centre'"):
        for _ in range(5):
            memory.look()
            module.centre = module.centre + 1


class Painter(torch.nn.Module):
    """A module that keeps what it has made, as those that adversarial networks are shown with."""

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        self.generated, self.first = batch * 2, batch[0]
        grid = self.generated[:1]
        return self.generated.sum() + grid.sum()


class Remembering(Painter):
    """One that goes on from what it has made."""

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        before = getattr(self, "generated", batch)
        return super().training_step(batch + before)


class Averaging(torch.nn.Module):
    """One with an average in its `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.generated = torch.zeros(3)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if batch.sum() > 0:
            self.generated = 0.9 * self.generated + batch
        return batch

    training_step = forward


@pytest.mark.parametrize(("kind", "is_refused"), [(Painter, False), (Remembering, True), (Averaging, True)])
def test_what_every_step_sets_anew_is_no_memory(kind: Any, is_refused: bool) -> None:
    """`self.generated = self(z)` stopped a training at its fourth step."""
    module = kind()
    memory = CallbackMemory(SimpleNamespace(models=[module], kept={}), [], [module])

    def go_on() -> None:
        for number in range(6):
            memory.look()
            module.training_step(torch.ones(3) + number)

    if not is_refused:
        go_on()
        return
    with pytest.raises(JobError, match=f"{kind.__name__} changes its attribute 'generated'"):
        go_on()
