"""What is handed on from turn to turn: variables of the loop over a step, attributes of modules."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from springtide.errors import JobError
from springtide.training.state import turn_memory
from springtide.training.state.script.loss_flow import Flow
from springtide.training.state.turn_memory import FIRST, TurnMemory


class Walk:
    """A step's part: turns of workers, looked at as those of a run are."""

    def __init__(self, *models: nn.Module) -> None:
        self.memory, self.models, self.turns = TurnMemory(), models, FIRST + 1

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.turns):
            self.memory.begin_turn(self.models)
            yield torch.ones(4)
            self.memory.end_turn(self.models)


def keep_hidden(walk: Walk) -> None:
    hidden = torch.zeros(4)
    for x in walk:
        out, hidden = x + hidden, x
        out.sum()


def keep_a_bank(walk: Walk) -> None:
    bank: dict[str, Any] = {"features": [torch.zeros(4)]}
    for x in walk:
        loss = (x - bank["features"][0]).sum()
        bank = {"features": [x * loss]}


class Trainer:
    """A script's own class, with a hidden state."""

    def __init__(self) -> None:
        self.hidden = torch.zeros(4)

    def train(self, walk: Walk) -> None:
        for x in walk:
            out, self.hidden = x + self.hidden, x
            out.sum()


def keep_in_an_object(walk: Walk) -> None:
    Trainer().train(walk)


def scale_by_a_sum(walk: Walk) -> None:
    center = torch.zeros(4)
    for x in walk:
        center += x
        x.sub(center).sum()


def sum_up(walk: Walk) -> None:
    total, classes = 0.0, torch.zeros(4)
    for x in walk:
        loss = x.sum()
        total += float(loss)
        classes += x


def keep_numbers(walk: Walk) -> None:
    best, scalar = 1e9, torch.tensor(1.0)
    for x in walk:
        best, scalar = min(best, float(x.sum())), scalar * 0.9


def set_anew(walk: Walk) -> None:
    hidden = torch.zeros(4)
    for x in walk:
        hidden = x.new_zeros(4)
        x.add(hidden)


@pytest.mark.parametrize("script", [keep_hidden, keep_a_bank, keep_in_an_object, scale_by_a_sum])
def test_tensors_that_the_next_turn_reads_are_refused(script: Callable[[Walk], None]) -> None:
    with pytest.raises(JobError, match=r"`[\w.]+` carries a tensor .* Keep it in step.worker.state"):
        script(Walk())


WEIGHT = torch.nn.Parameter(torch.ones(4))


def warm_up(walk: Walk) -> None:
    i = 0
    for x in walk:
        ((x * WEIGHT).sum() * min(1, i / 50)).backward()
        i += 1  # noqa: SIM113 - as scripts have it


def weigh_by_a_total(walk: Walk) -> None:
    seen = 0
    for x in walk:
        seen = seen + len(x)
        share = seen / 100
        loss = (x * WEIGHT).sum()
        loss = loss * share
        loss.backward()


def change_every_second(walk: Walk) -> None:
    i = 0
    for x in walk:
        i += 1  # noqa: SIM113 - as scripts have it
        loss = (x * WEIGHT).sum()
        if i % 2:
            loss = loss + WEIGHT.square().sum()
        loss.backward()


def skip_the_first(walk: Walk) -> None:
    i = 0
    for x in walk:
        i += 1
        if i < 3:
            continue
        (x * WEIGHT).sum().backward()


def norm_by_an_average(walk: Walk) -> None:
    average: torch.Tensor | None = None
    for x in walk:
        loss = (x * WEIGHT).sum()
        average = loss.detach() if average is None else 0.9 * average + 0.1 * loss.detach()
        (loss / average).backward()


def count_in_items(walk: Walk) -> None:
    counts = {"i": 0}
    for x in walk:
        counts["i"] += 1
        ((x * WEIGHT).sum() / counts["i"]).backward()


def find_loss(x: torch.Tensor, place: int) -> torch.Tensor:
    weight = 1 / (1 + place)
    return (x * WEIGHT).sum() * weight


def give_to_a_function(walk: Walk) -> None:
    i = 0
    for x in walk:
        find_loss(x, place=i).backward()
        i += 1  # noqa: SIM113 - as scripts have it


class Fitting:
    """A script's own class that counts in the loop, and uses it in a method."""

    def __init__(self) -> None:
        self.count = 0

    def train_on(self, x: torch.Tensor) -> None:
        (find_loss(x, 0) / (1 + self.count)).backward()

    def fit(self, walk: Walk) -> None:
        for x in walk:
            self.train_on(x)
            self.count += 1


def count_in_an_object(walk: Walk) -> None:
    Fitting().fit(walk)


COUNTING = [warm_up, weigh_by_a_total, change_every_second, skip_the_first, norm_by_an_average, count_in_items]
COUNTING += [give_to_a_function, count_in_an_object]


@pytest.mark.parametrize("script", COUNTING)
def test_numbers_that_gradients_depend_on_are_refused(script: Callable[[Walk], None]) -> None:
    with pytest.raises(JobError, match=r"carries a number from the turn of .* Take step.number"):
        script(Walk())


def test_each_walk_of_a_step_is_looked_at() -> None:
    walk, i = Walk(), 0
    walk.turns = 2
    for x in walk:
        (x * WEIGHT).sum().backward()
    with pytest.raises(JobError, match="`i` carries a number"):
        for x in walk:
            ((x * WEIGHT).sum() * i).backward()
            i += 1


def test_a_place_in_a_step_is_counted_by_the_step() -> None:
    with pytest.raises(JobError, match=r"`i` counts turns, .* Write `for i, batch in step.enumerate\(\):`"):
        for i, x in enumerate(Walk()):
            ((x * WEIGHT).sum() * min(1, i / 50)).backward()


class Fading:
    """A script's own class that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        return self.calls / 10


def test_code_that_cannot_be_followed_ends_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flow, "find_trained", lambda flow: [][0])
    with pytest.warns(UserWarning, match=r"code of show_progress could not be followed \(IndexError"):
        show_progress(Walk())


def test_an_object_that_counts_its_calls_is_refused() -> None:
    fading = Fading()
    with pytest.raises(JobError, match=r"`fading` \(Fading\) changes its attribute 'calls' .* Take step.number"):
        for x in Walk():
            ((x * WEIGHT).sum() * fading()).backward()


CALLS = 0


def weigh_by_calls(x: torch.Tensor) -> torch.Tensor:
    global CALLS
    CALLS += 1
    return (x * WEIGHT).sum() * CALLS


def test_a_function_that_counts_its_calls_is_refused() -> None:
    with pytest.raises(JobError, match=r"`CALLS` carries a number .* Take step.number"):
        for x in Walk():
            weigh_by_calls(x).backward()


def test_a_function_that_counts_in_another_is_refused() -> None:
    calls = 0

    def weigh(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return (x * WEIGHT).sum() * calls

    with pytest.raises(JobError, match=r"`calls` carries a number .* Take step.number"):
        for x in Walk():
            weigh(x).backward()


def test_a_function_may_count_what_is_set_anew_in_every_turn() -> None:
    tokens = 0

    def add(count: int) -> None:
        nonlocal tokens
        tokens += count

    for turn, x in zip((1, 2, 3, 4, 5, 6), Walk(), strict=False):
        tokens = 0
        add(turn)
        ((x * WEIGHT).sum() / tokens).backward()


def test_functions_may_count_what_they_show() -> None:
    calls = shown = 0

    def weigh(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        str(calls)
        return (x * WEIGHT).sum()

    for x in Walk():
        loss = weigh(x)
        loss.backward()
        shown += calls


class Annealing:
    """One that is told of a turn, and has its weight in a property."""

    def __init__(self) -> None:
        self.turns = 0

    def advance(self) -> None:
        self.turns += 1

    @property
    def weight(self) -> float:
        return min(1, self.turns / 10)


def test_an_object_that_counts_for_a_property_is_refused() -> None:
    annealing = Annealing()
    with pytest.raises(JobError, match=r"`annealing` \(Annealing\) changes its attribute 'turns' "):
        for x in Walk():
            annealing.advance()
            ((x * WEIGHT).sum() * annealing.weight).backward()


def show_progress(walk: Walk) -> None:
    i, total, correct, best, losses, shown = 0, 0.0, 0, 9.0, [0.0], {"n": 0}
    for place, x in enumerate(walk):
        loss = (x * WEIGHT).sum()
        if not total < float("inf"):
            break
        loss.backward()
        i += 1  # noqa: SIM113 - as scripts have it
        total += loss.item()
        correct += int((x > 0).sum())
        best = min(best, loss.item())
        losses.append(total / i)
        shown["n"] += 1
        if i % 2 == 0 or place == 0:
            str(f"{i}/{len(losses)} {total / i:.2f} {correct} {best} {shown}")


def train_and_log(x: torch.Tensor, i: int, logs: dict[str, float]) -> dict[str, Any]:
    loss = (x * WEIGHT).sum()
    logs["loss"] = loss.item()
    if i % 10 == 0:
        str(f"{i} {logs}")
    return {"loss": loss, "place": i}


def log_in_a_function(walk: Walk) -> None:
    i, logs = 0, {"loss": 0.0}
    for x in walk:
        out = train_and_log(x, i, logs)
        out["loss"].backward()
        i += 1  # noqa: SIM113 - as scripts have it


class Logging:
    """A script's own class that counts and shows."""

    def __init__(self) -> None:
        self.seen, self.total, self.mean = 0, 0.0, 0.0

    def find_loss(self, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        loss = (x * WEIGHT).sum()
        self.seen += len(x)
        self.total += loss.item()
        self.mean = self.total / self.seen
        return loss, self.mean


def show_a_mean(walk: Walk) -> None:
    logging = Logging()
    for x in walk:
        loss, _ = logging.find_loss(x)
        loss.backward()


def keep_in_a_worker(walk: Walk) -> None:
    states: list[dict[str, int]] = [{"i": 0}]
    for x in walk:
        state = states[0]
        state["i"] += 1
        ((x * WEIGHT).sum() / state["i"]).backward()


@pytest.mark.parametrize("script", [show_progress, log_in_a_function, show_a_mean, keep_in_a_worker])
def test_numbers_that_are_only_shown_are_not(script: Callable[[Walk], None]) -> None:
    script(Walk())


def mix_up(walk: Walk) -> None:
    mixing, teacher = len("yes") > 1, torch.nn.Identity()
    for x in walk:
        if mixing:
            other, part = x.flip(0), torch.rand(4)
        out = x * 2
        if teacher is not None:
            target = teacher(x)
        if mixing:
            out = out * part + other * (1 - part)
        if teacher is not None:
            out.sub(target).sum()


def unroll(walk: Walk) -> None:
    for x in walk:
        for place in range(3):
            if place == 0:
                hidden = torch.zeros(4)
            hidden = hidden * 0.5 + x


def collect(walk: Walk) -> None:
    found: list[torch.Tensor] = []
    for x in walk:
        found = found + [x]  # noqa: RUF005 - as scripts have it


@pytest.mark.parametrize("script", [sum_up, keep_numbers, set_anew, mix_up, unroll, collect])
def test_sums_numbers_and_what_is_set_anew_are_not(script: Callable[[Walk], None]) -> None:
    script(Walk())


class Stateful:
    """A script's own class whose methods keep a hidden state."""

    def __init__(self) -> None:
        self.hidden = torch.zeros(4)

    def training_step(self, x: torch.Tensor) -> torch.Tensor:
        out = x + self.hidden
        self.hidden = out.detach()
        return out.sum()

    def fit(self, walk: Walk) -> None:
        for x in walk:
            self.training_step(x)


def test_a_hidden_state_in_an_object_is_refused() -> None:
    with pytest.raises(JobError, match=r"`self` \(Stateful\) changes its attribute 'hidden'.*step\.worker\.state"):
        Stateful().fit(Walk())


class Harmless:
    """What a script's own classes have in themselves and may."""

    def __init__(self) -> None:
        self.seen = 0
        self.total = self.matrix = self.features = self.last = self.given = torch.zeros(4)

    def set_input(self, x: torch.Tensor) -> None:
        self.features = x

    def step(self) -> None:
        self.features = self.features.relu()  # of this turn
        self.given = self.given * 2 + self.given
        self.last = self.features
        self.seen += 1
        self.total = self.total + self.features
        self.matrix += self.features


def test_sums_outputs_and_what_another_method_sets_are_left_alone() -> None:
    trainer, walk = Harmless(), Walk()
    for x in walk:
        trainer.set_input(x)
        trainer.given = x
        trainer.step()


class Graph:
    """A batch of the script's own class, as graphs are, that changes itself."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def to(self, dtype: torch.dtype) -> "Graph":
        self.x = self.x.to(dtype)
        return self


def test_a_batch_that_is_another_in_every_turn_may_change_itself() -> None:
    for graph in map(Graph, Walk()):
        graph.to(torch.float64).x.sum()
    for x in Walk():
        graph = Graph(x)
        graph.to(torch.float64).x.sum()


def turn_round(walk: Walk, graph: Graph) -> None:
    for _ in walk:
        graph = graph.to(torch.float64 if graph.x.dtype == torch.float32 else torch.float32)


def look_up_in_every_turn(walk: Walk, graph: Graph) -> None:
    graphs = {"one": graph}
    for _ in walk:
        found = graphs["one"]
        found.to(torch.float64 if found.x.dtype == torch.float32 else torch.float32)


def take_turns(walk: Walk, graph: Graph) -> None:
    graphs = [graph, Graph(torch.ones(4))]
    for _ in walk:
        found = graphs[0]
        found.to(torch.float64 if found.x.dtype == torch.float32 else torch.float32)
        graphs.reverse()


@pytest.mark.parametrize("script", [turn_round, look_up_in_every_turn, take_turns])
def test_an_object_that_turns_go_on_with_may_not(script: Callable[[Walk, Graph], None]) -> None:
    with pytest.raises(JobError, match=r"`(graph|found)` \(Graph\) changes its attribute 'x'"):
        script(Walk(), Graph(torch.zeros(4)))


def test_an_object_of_an_epoch_may_not() -> None:
    with pytest.raises(JobError, match=r"`(self|trainer)` \(Stateful\) changes its attribute 'hidden'"):
        for _ in range(2):
            trainer = Stateful()
            trainer.fit(Walk())


class Counting(nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x / self.calls


class Averaging(nn.Module):
    """Has an average that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = self.mean
        self.mean = 0.9 * mean + 0.1 * x
        return x - mean


class Remembering(nn.Module):
    """Has a hidden state that is None at first."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.hidden is None:
            self.hidden = torch.zeros(4)
        self.hidden = torch.tanh(x + self.hidden)
        return self.hidden


class CountingInTraining(nn.Module):
    """Counts its calls while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls = self.calls + 1
        return x / max(1, self.calls)


class Showing(nn.Module):
    """Counts its calls: its own code does nothing else with that than to show it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls % 3 == 0:
            str(f"{self.calls}")
        return x


class ShowingToOthers(Showing):
    """One whose count a property has."""

    @property
    def weight(self) -> float:
        return 1 / self.calls


class Seeding(Showing):
    """One that draws by its count, in a call that returns nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator()
        self.calls += 1
        generator.manual_seed(self.calls)
        return x * torch.rand(4, generator=generator)


class Counted:
    """A part of a class of modules that is no module itself."""

    calls = 0

    def count(self) -> None:
        self.calls += 1


class CountedOutside(Counted, nn.Module):
    """A module whose count is in a part of its class."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count()
        return x / self.calls


class TakingOfAPart(nn.Module):
    """One whose output is made of what a part of it counts."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Showing()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.part(x)
        return out / self.part.calls


class SummingUp(nn.Module):
    """Sums up what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total = self.total + x.detach()
        return x


class TrainsWithACount:
    """A script's class whose loss takes the count of a model that it holds."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def train(self, walk: Walk) -> None:
        for x in walk:
            ((self.model(x) * WEIGHT).sum() / self.model.calls).backward()


class Masking(nn.Module):
    """Makes its mask anew where it does not fit, sums up what it sets anew, and copies what others have."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: torch.Tensor | None = torch.zeros(2)
        self.auxiliary = 0.0
        self.weight = torch.zeros(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mask is None or self.mask is not x:
            self.mask = x.clone()
        self.auxiliary = 0.0
        for _ in range(3):
            self.auxiliary += float(torch.rand(()))
        other = nn.Linear(4, 4)
        self.weight = other.weight
        return x + self.mask


class Caching(nn.Module):
    """Has a cache that grows, and leaves its output for others to read."""

    def __init__(self) -> None:
        super().__init__()
        self.longest, self.table = 0, torch.zeros(0)
        self.output: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.longest:
            self.longest, self.table = len(x), torch.arange(float(len(x)))
        self.output = x + self.table[: len(x)]
        return self.output


@pytest.mark.parametrize(
    ("module", "attribute"),
    [(Counting(), "calls"), (CountingInTraining(), "calls"), (Averaging(), "mean"), (Remembering(), "hidden")],
)
def test_modules_that_remember_are_refused(module: nn.Module, attribute: str) -> None:
    outer = nn.Sequential(nn.Identity(), module)
    with pytest.raises(
        JobError, match=f"module 1 changes its attribute '{attribute}' in every forward.*register_buffer"
    ):
        for x in Walk(outer):
            outer(x)


@pytest.mark.parametrize(
    "model", [Showing(), ShowingToOthers(), Seeding(), TakingOfAPart(), CountedOutside(), SummingUp()]
)
def test_a_module_that_counts_is_refused_whatever_it_does_with_the_count(model: nn.Module) -> None:
    """Who else reads it (a property, a part's owner, a generator, the script) is not known for sure."""
    with pytest.raises(JobError, match=r"changes its attribute '(calls|total)' in every forward"):
        for x in Walk(model):
            (model(x) * WEIGHT).sum().backward()


def test_a_count_that_the_loss_takes_from_a_module_is_refused() -> None:
    model = Showing()
    with pytest.raises(JobError, match=r"'calls'|model\.calls"):
        for x in Walk(model):
            ((model(x) * WEIGHT).sum() / model.calls).backward()


def test_a_count_of_a_model_that_a_trainer_holds_is_refused() -> None:
    model = Showing()
    with pytest.raises(JobError, match="changes its attribute 'calls' in every forward"):
        TrainsWithACount(model).train(Walk(model))


def collect_in_a_tensor(walk: Walk) -> None:
    outputs, targets = torch.zeros(0), torch.zeros(2)
    for x in walk:
        out = x * WEIGHT
        out.sum().backward()
        outputs = torch.cat([outputs, out.detach()])
        targets = torch.cat((targets, x))
        str(outputs.mean())


def test_outputs_that_are_collected_in_a_tensor_are_left_alone() -> None:
    collect_in_a_tensor(Walk())


def test_a_tensor_that_turns_put_together_and_train_with_is_refused() -> None:
    bank = torch.zeros(4)
    with pytest.raises(JobError, match="`bank` carries a tensor"):
        for x in Walk():
            (x * WEIGHT + bank.mean()).sum().backward()
            bank = torch.cat([bank, x])


def test_caches_outputs_and_buffers_are_not() -> None:
    model = nn.Sequential(Caching(), Masking(), nn.BatchNorm1d(4))
    for x in Walk(model):
        model(x.expand(4, 4))
    assert model[2].num_batches_tracked == FIRST + 1


def test_what_others_have_looked_at_is_not_looked_at_again() -> None:
    donor, walk = Walk(), Walk()
    sum_up(donor)
    assert len(donor.memory.list_over()) == 1
    walk.memory.skip(donor.memory.list_over())
    sum_up(walk)
    assert not walk.memory.looks
    with pytest.raises(JobError, match="`hidden` carries a tensor"):
        keep_hidden(walk)  # a loop of its own


def test_what_begins_late_is_seen_when_it_is_looked_for_again() -> None:
    """`if epoch >= 1:` leaves a value alone in all turns of the first look."""
    walk, centre, losses = Walk(), torch.zeros(4), []
    with pytest.raises(JobError, match="`centre` carries a tensor"):
        for epoch in range(2):
            for x in walk:
                losses.append(((x - centre) * WEIGHT).sum())
                losses[-1].backward()
                if epoch >= 1:
                    centre = torch.lerp(centre, x, 0.1)
            walk.memory.look_again()
    assert len(losses) == FIRST + 1 + 3
    assert len(walk.memory.list_over()) == 1, "joiners hear of a place though it is looked at again"


def test_a_walk_that_comes_after_the_first_turns_is_looked_at() -> None:
    walk, i = Walk(), 0
    walk.turns = 8
    for x in walk:
        (x * WEIGHT).sum().backward()
    with pytest.raises(JobError, match="`i` carries a number"):
        for x, _ in zip(walk, range(8), strict=True):
            ((x * WEIGHT).sum() * i).backward()
            i += 1


def train_in_a_generator(walk: Walk) -> Iterator[torch.Tensor]:
    i = 0
    for x in walk:
        loss = (x * WEIGHT).sum() * i
        loss.backward()
        i += 1  # noqa: SIM113 - as scripts have it
    yield loss


def test_a_loop_in_a_generator_is_looked_at() -> None:
    with pytest.raises(JobError, match="`i` carries a number"):
        for loss in train_in_a_generator(Walk()):
            loss.item()


def make_once(walk: Walk) -> None:
    ready, mask, table = False, torch.ones(4), None
    for x in walk:
        if not ready:
            mask = torch.zeros_like(x) + 1
            ready = True
        if table is None:
            table = mask * 2
        (x * WEIGHT * mask * table).sum().backward()


def test_what_is_made_once_is_no_count() -> None:
    make_once(Walk())


def test_what_a_turn_may_leave_and_most_change_is_one() -> None:
    last = 1.0
    with pytest.raises(JobError, match="`last` carries a number"):
        for x in Walk():
            ((x * WEIGHT).sum() * last).backward()
            if len(x) == 4:
                last = random.random()


@pytest.mark.parametrize("name", ["find_counted", "find_place", "find_kept", "find_passed_on", "find_left"])
def test_no_look_ends_a_script(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_memory, name, lambda *given: [][0])
    said: list[str] = []
    walk = Walk()
    walk.memory = TurnMemory(said.append)
    show_progress(walk)
    assert len(said) == 1
    assert "code of show_progress could not be followed (IndexError" in said[0]
