"""The environment a process is told things by."""

from pathlib import Path

import pytest

from springtide.errors import JobError
from springtide.training.settings import Settings, find_roster, read_settings, write_settings


def test_settings_survive_the_environment() -> None:
    settings = Settings(
        process="p3", roster="p0:2,p3:2", joining=True, max_steps=5, checkpoint_dir=Path("x"), checkpoint_every_s=0.5
    )
    assert read_settings(write_settings(settings)) == settings
    assert write_settings(Settings()) == {}


def test_numbers_must_be_numbers() -> None:
    with pytest.raises(JobError, match="SPRINGTIDE_MAX_STEPS is 'many'"):
        read_settings({"SPRINGTIDE_MAX_STEPS": "many"})


def test_rosters_of_launcher_torchrun_and_nobody() -> None:
    assert find_roster(Settings(roster="a:1,b:3", process="b"), 4, {})[0].counts == (1, 3)
    roster, name = find_roster(Settings(), 4, {"RANK": "2", "WORLD_SIZE": "3"})
    assert (roster.counts, roster.rank_of(name)) == ((2, 1, 1), 2)
    assert find_roster(Settings(), 4, {})[0].counts == (4,)
