"""Torch's default group: refused while a run is elastic, torch's own again for what is measured after it."""

import os
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from springtide.errors import JobError
from springtide.training.group.default_group import refuse_groups, tell_world_size
from springtide.training.run import forget_run


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What a run would say, with torch's calls as an elastic run leaves them."""
    texts: list[str] = []
    refuse_groups(texts.append)
    yield texts
    forget_run()


def test_stock_ddp_can_be_measured_after_an_elastic_run() -> None:
    torchs_own = dist.init_process_group, dist.is_initialized
    refuse_groups(print)
    with pytest.raises(JobError, match="default group"):
        dist.init_process_group("gloo")
    forget_run()
    assert (dist.init_process_group, dist.is_initialized) == torchs_own


@pytest.mark.parametrize("before", ["2", None])
def test_a_script_reads_the_number_of_logical_workers(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if before is not None:
        monkeypatch.setenv("WORLD_SIZE", before)
    tell_world_size(4)
    assert os.environ["WORLD_SIZE"] == "4"
    forget_run()
    assert os.environ.get("WORLD_SIZE") == before


def test_a_branch_over_ranks_is_named_once(said: list[str]) -> None:
    answers = [dist.is_available() and dist.is_initialized() for _ in range(2)]
    assert answers == [False, False]
    (text,) = said
    assert "test_default_group.py:" in text and "run.mean" in text and "run.is_main" in text


def test_a_library_that_asks_is_left_alone(said: list[str]) -> None:
    space = {"dist": dist, "__name__": "library"}
    exec(compile("dist.is_initialized()", "/usr/lib/site-packages/library.py", "exec"), space)
    assert said == []


def test_a_compiled_question_is_no_break_in_the_graph(said: list[str]) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * (3 if dist.is_initialized() else 2)

    compiled = torch.compile(double, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [2, 2]
