"""The guard: any bit that differs is seen, its first place is named on every process, and what it costs is bounded."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from springtide.errors import JobError, NondeterminismError
from springtide.training.group.groups import Group
from springtide.training.state import divergence
from springtide.training.state.common_parts import check_parts_alike, describe_host, describe_options
from springtide.training.state.divergence import (
    CAUSES,
    DivergenceGuard,
    find_difference,
    line_up,
    number_plain,
    number_tensor,
)

CPU = torch.device("cpu")


@dataclass
class Processes:
    """Two processes, as threads, that can talk."""

    groups: list[Group]

    def each(self, action: Callable[[Any], Any], **facts: tuple[Any, Any]) -> list[Any]:
        """What an action gives on both, each with its own facts; an error is given, too."""

        def run(rank: int) -> Any:
            own = {name: values[rank] for name, values in facts.items()}
            try:
                return action(SimpleNamespace(group=self.groups[rank], device=CPU, name=f"p{rank}", **own))
            except JobError as error:
                return error

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(run, range(2)))


@pytest.fixture
def processes() -> Processes:
    store, patience = dist.HashStore(), timedelta(seconds=30)
    with ThreadPoolExecutor(2) as pool:
        backends = pool.map(lambda rank: dist.ProcessGroupGloo(store, rank, 2, patience), range(2))
        return Processes([Group(backend, rank, 2, "0") for rank, backend in enumerate(backends)])


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64]
)
def test_any_bit_of_a_tensor_counts(dtype: torch.dtype) -> None:
    one = torch.ones(5, dtype=dtype)
    other = one.clone()
    other.reshape(-1).view(torch.uint8)[0] ^= 1
    assert int(number_tensor(one)) == int(number_tensor(one.clone())) != int(number_tensor(other))


@pytest.mark.parametrize("count", [7, 8])
def test_a_number_is_of_what_is_in_a_tensor_and_not_of_where_it_lies(count: int) -> None:
    # Eight bytes are read at a time where there are as many.
    values = torch.arange(16, dtype=torch.float32)
    numbers = [int(number_tensor(torch.cat([torch.zeros(off), values])[off : off + count])) for off in range(3)]
    assert len(set(numbers)) == 1


@pytest.mark.parametrize("count", [7, 8])
def test_a_bit_of_any_element_counts(count: int) -> None:
    one = torch.arange(count, dtype=torch.float32)
    for place in range(count):
        other = one.clone()
        other.view(torch.int32)[place] ^= 1
        assert int(number_tensor(other)) != int(number_tensor(one))


def test_numbers_of_many_tensors_fit_where_they_are_compared() -> None:
    large = torch.full((2,), torch.iinfo(torch.int64).max // 2)
    number = number_plain({"one": large, "two": large.clone(), "three": large.clone()})
    assert line_up([number], CPU).tolist() == [number]


def test_minus_zero_is_not_zero() -> None:
    assert int(number_tensor(torch.tensor([0.0]))) != int(number_tensor(torch.tensor([-0.0])))


def test_plain_state_counts_and_functions_do_not() -> None:
    state = {"lr": 0.1, "betas": (0.9, 0.99), "inside": [torch.ones(2)], "rule": len}
    assert number_plain(state) == number_plain({**state, "rule": print})
    assert number_plain(state) != number_plain({**state, "lr": 0.1 + 1e-17 * 2})
    assert number_plain(state) != number_plain({**state, "inside": [torch.tensor([1.0, 1.0000001])]})


def test_the_first_difference_is_known_to_both(processes: Processes) -> None:
    names = ["parameter a", "buffer b", "run.state"]
    mine, theirs = torch.tensor([1, 2, 3]), torch.tensor([1, 5, 6])
    found = processes.each(lambda run: find_difference(run, names, run.numbers), numbers=(mine, theirs))
    assert found == ["buffer b", "buffer b"]
    assert processes.each(lambda run: find_difference(run, names, mine)) == [None, None]


def test_tensors_that_only_one_has_are_seen(processes: Processes) -> None:
    names = (["parameter a"], ["parameter a", "optimizer 0 step a"])
    numbers = (torch.tensor([1]), torch.tensor([1, 2]))
    found = processes.each(lambda run: find_difference(run, run.names, run.numbers), names=names, numbers=numbers)
    assert [str(one).startswith("optimizer state: some processes have") for one in found] == [True, True]


@pytest.mark.parametrize(
    "name", ["parameter 0.weight", "optimizer state: some", "random state between turns", "run.state"]
)
def test_every_kind_of_difference_has_a_usual_cause(name: str) -> None:
    run: Any = SimpleNamespace(is_main=True, peers=None, position=SimpleNamespace(step=7))
    cause = CAUSES[next(kind for kind in CAUSES if name.startswith(kind))]
    with pytest.raises(NondeterminismError, match=f"after step 7 the processes differ, first in {name}") as error:
        divergence.refuse(run, name, [])
    assert str(error.value).endswith(cause)


def test_what_a_process_has_lost_is_named_beside_the_usual_cause(processes: Processes) -> None:
    lost = processes.each(divergence.gather_lost, lost=(["count was 3 and is 0"], ["count was 3 and is 0", "best"]))
    assert lost == [["count was 3 and is 0", "best"]] * 2
    run: Any = SimpleNamespace(is_main=True, peers=None, position=SimpleNamespace(step=7))
    with pytest.raises(NondeterminismError, match=r"lost what it counted \(count was 3 and is 0, best\): keep it in"):
        divergence.refuse(run, "parameter 0.weight", lost[0])


def test_the_guard_waits_in_proportion_to_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("springtide.training.state.divergence.time.monotonic", lambda: clock[0])

    def compare(run: Any, names: list[str], numbers: torch.Tensor) -> None:
        clock[0] += 0.5

    monkeypatch.setattr(divergence, "find_difference", compare)
    monkeypatch.setattr(divergence, "number_state", lambda run: iter([("run.state", 3)]))
    guard = DivergenceGuard()
    assert guard.is_due()
    guard.compare(SimpleNamespace(group=object(), device=CPU))  # type: ignore[arg-type]
    assert guard.due_s == 100.5 + divergence.PARTS * 0.5
    assert not guard.is_due()


def test_processes_with_other_parts_are_refused(processes: Processes) -> None:
    facts = ({"weight a": "(2,)", "first sample": "1f"}, {"weight a": "(2,)", "first sample": "2e"})
    first, second = processes.each(check_parts_alike, part_facts=facts)
    assert first is None
    assert str(second).startswith(
        "what process p1 gave to run.prepare differs from what the first process gave, first in first sample: 2e here, "
        "1f there."
    )
    assert processes.each(check_parts_alike, part_facts=(facts[0], facts[0])) == [None, None]


@pytest.mark.parametrize(
    ("name", "here", "there", "remedy"),
    [("torch", "2.8.0", "2.9.1+cpu", "Install one version"), ("kernels", "AVX2", "AVX512", "with determinism: D2")],
)
def test_processes_that_compute_otherwise_are_refused(
    processes: Processes, name: str, here: str, there: str, remedy: str
) -> None:
    first, second = processes.each(check_parts_alike, part_facts=({name: there}, {name: here}))
    assert first is None
    assert f"process p1 computes with {name} {here}, the first process with {there}" in str(second)
    assert remedy in str(second) and "determinism: D0" in str(second)


@pytest.mark.parametrize(("level", "names"), [("D0", []), ("D1", ["torch", "kernels"]), ("D2", ["torch"])])
def test_a_level_asks_of_a_host_what_it_promises(level: str, names: list[str]) -> None:
    run: Any = SimpleNamespace(level=level, device=CPU)
    assert list(describe_host(run)) == names


def test_options_of_an_optimizer_are_parts() -> None:
    weights = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))]
    groups: list[dict[str, Any]] = [{"params": weights[:1], "lr": 0.5}, {"params": weights[1:]}]
    one = torch.optim.SGD(groups, lr=0.1)
    facts, other = dict(describe_options(one)), dict(describe_options(torch.optim.SGD(weights, lr=0.2)))
    assert facts["momentum"] == other["momentum"] == "0" and "params" not in facts
    assert facts["lr"] == "0.5, 0.1" and other["lr"] == "0.2"
