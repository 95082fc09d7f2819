"""What is said where a run is resumed from what another machine wrote."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.training.state.test_checkpoints import FACTS, state_at

from springtide.training.determinism.levels import name_kernels
from springtide.training.settings import Settings
from springtide.training.state import checkpointing
from springtide.training.state.checkpoints import Checkpoints

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("level", "written_on", "is_told"),
    [
        pytest.param("D1", "SSE9", True, id="other kernels"),
        pytest.param("D1", name_kernels("D1", CPU), False, id="the same"),
        pytest.param("D1", None, False, id="an earlier version's"),
        pytest.param("D2", "", False, id="of all kinds"),
    ],
)
def test_a_resume_with_other_kernels_is_told(tmp_path: Path, level: str, written_on: str | None, is_told: bool) -> None:
    checkpoints, told = Checkpoints(tmp_path, 2), list[str]()
    state = state_at(3) | ({} if written_on is None else {"kernels": written_on})
    checkpoints.save(state, 3, FACTS)
    checkpoints.wait()
    channel = SimpleNamespace(warn=told.append, send=lambda *words, **facts: None)
    run: Any = SimpleNamespace(
        checkpoints=checkpoints, settings=Settings(), facts=FACTS, level=level, device=CPU, channel=channel
    )
    saved = checkpointing.load(run)
    assert saved is not None and saved["model"]["n"] == 3
    assert ["written on SSE9" in text and "determinism: D2" in text for text in told] == [True] * is_told
