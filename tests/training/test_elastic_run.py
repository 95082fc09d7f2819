"""Equality with stock DDP, by bits and at every step, for placements, rescales, kills and habits of users' loops."""

from typing import Any

import pytest
from tests.training.equality import SCRIPTS, EqualityRuns

from springtide.training.state.checkpoints import read_state
from springtide.verification.digest_compare import find_difference

CNN: dict[str, Any] = {"model": "cnn", "evaluate": True, "clip": 1.0}


@pytest.mark.parametrize("size", ["1", "2", "4", "2+1+1", "3+1", "1+2+1"])
def test_placements_have_the_bits_of_ddp(equality: EqualityRuns, size: str) -> None:
    equality.compare(CNN, (0, size))


def test_rescale_in_place_keeps_the_bits(equality: EqualityRuns) -> None:
    equality.compare(CNN, (0, "4"), (2, "1"), (4, "3"), (9, "2"))


def test_a_gloo_that_adds_otherwise_leaves_placements_equal_to_each_other(equality: EqualityRuns) -> None:
    asked = {"model": "cnn", "strange_gloo": True}
    alone, _ = equality.run(asked, [(0, "1")], steps=5)
    for rosters in ([(0, "4")], [(0, "2"), (2, "4")]):
        records, _ = equality.run(asked, rosters, steps=5)
        assert find_difference(alone, records) is None
    assert find_difference(equality.reference({"model": "cnn"}, 5), alone) is not None, "not to stock DDP"


def test_killed_processes_resume_from_the_checkpoint_with_the_same_bits(equality: EqualityRuns) -> None:
    folder = equality.new_folder()
    equality.compare(CNN, (0, "2"), kills=(4, 9), checkpoint_dir=folder, checkpoint_every_steps=3)


def test_kill_before_the_first_checkpoint_starts_again(equality: EqualityRuns) -> None:
    equality.compare(CNN, (0, "2+1+1"), kills=(2,), checkpoint_dir=equality.new_folder())


# The first steps overflow and are skipped; then the scale changes every other step.
OVERFLOWING = {"init_scale": 2.0**127, "backoff_factor": 2.0**-60, "growth_interval": 2}
HABITS: dict[str, dict[str, Any]] = {
    "transformer with AdamW": {"model": "attention", "optimizer": "adamw"},
    "two buckets": {"model": "wide", "optimizer": "adam"},
    "unused parameters": {"model": "forking", "prepare": {"find_unused_parameters": True}},
    "replaced buffers": {"model": "counting"},
    "own buffers": {"model": "cnn", "prepare": {"broadcast_buffers": False}},
    "gradient accumulation": {"model": "cnn", "prepare": {"accumulate": 2}},
    "a dictionary as output": {"model": "describing", "prepare": {"accumulate": 2}},
    "a model that runs twice in a step": {"model": "wide", "twice": True},
    "a way of its own to make batches": {"model": "cnn", "backwards": True, "prepare": {"drop_last": False}},
    "bfloat16 autocast": {"model": "cnn", "autocast": True},
    "a gradient scaler that overflows": {"model": "cnn", "scaler": OVERFLOWING},
    "a gradient scaler and clipping": {"model": "cnn", "scaler": OVERFLOWING, "unscale": True, "clip": 0.5},
    "a gradient scaler and accumulation": {"model": "cnn", "scaler": OVERFLOWING, "prepare": {"accumulate": 2}},
    "zeroed instead of cleared": {"model": "cnn", "set_to_none": False},
    "cleared at the start": {"model": "cnn", "zero_first": True},
    "clipping of accumulated gradients": {"model": "cnn", "clip": 0.5, "prepare": {"accumulate": 2}},
    "augmentation": {"model": "cnn", "data": "noisy"},
    "incomplete batches": {"model": "wide", "prepare": {"drop_last": False}},
    "no shuffling": {"model": "wide", "prepare": {"shuffle": False}},
    "three workers": {"model": "cnn", "workers": 3},
    "logging where logical worker 0 lives": {"model": "cnn", "main_logs": True},
}


@pytest.mark.parametrize("habit", HABITS)
def test_habits_have_the_bits_of_ddp(equality: EqualityRuns, habit: str) -> None:
    # Uneven, so that one process has turns in which the others have none left.
    uneven = "2+1" if HABITS[habit].get("workers") == 3 else "3+1"
    equality.compare(HABITS[habit], (0, "1"), (3, uneven), steps=6)


def test_a_gradient_scaler_survives_kills(equality: EqualityRuns) -> None:
    asked = {"model": "cnn", "scaler": OVERFLOWING}
    equality.compare(asked, (0, "2"), kills=(4, 8), checkpoint_dir=equality.new_folder(), checkpoint_every_steps=3)


def test_buffers_of_each_worker_survive_rescales_and_kills(equality: EqualityRuns) -> None:
    asked = {"model": "centering", "prepare": {"broadcast_buffers": False}}
    saved = {"checkpoint_dir": equality.new_folder(), "checkpoint_every_steps": 3}
    equality.compare(asked, (0, "2"), (5, "3+1"), kills=(4, 8), **saved)


def test_two_optimizers_have_the_bits_of_ddp(equality: EqualityRuns) -> None:
    stock = equality.run_script(SCRIPTS / "pair.py", [(0, "4")], mode="reference")
    saved = {"checkpoint_dir": equality.new_folder(), "checkpoint_every_steps": 3}
    ours = equality.run_script(SCRIPTS / "pair.py", [(0, "1"), (3, "3")], [7], **saved)
    assert len(stock) == 10
    assert find_difference(stock, ours) is None


def test_an_iterable_dataset_gives_the_same_bits_under_rescales_and_kills(equality: EqualityRuns) -> None:
    still = equality.run_script(SCRIPTS / "stream.py", [(0, "1")])
    saved = {"checkpoint_dir": equality.new_folder(), "checkpoint_every_steps": 3}
    changed = equality.run_script(SCRIPTS / "stream.py", [(0, "3+1"), (3, "4"), (6, "2")], [8], **saved)
    assert len(still) == 10
    assert find_difference(still, changed) is None


def test_the_users_own_state_survives_a_kill(equality: EqualityRuns) -> None:
    folder = equality.new_folder()
    equality.run(CNN, [(0, "1")], kills=(4,), checkpoint_dir=folder, checkpoint_every_steps=3)
    assert read_state(max(folder.glob("step-*")))["user"] == {"seen": 10}


def test_data_loader_workers_do_not_matter(equality: EqualityRuns) -> None:
    asked = {"model": "cnn", "data": "noisy"}
    pooled = asked | {"prepare": {"num_workers": 2}}
    records, _ = equality.run(pooled, [(0, "2"), (4, "1")], steps=6)
    assert records == equality.reference(asked, 6)


@pytest.mark.slow
def test_several_large_buckets_have_the_bits_of_ddp(equality: EqualityRuns) -> None:
    equality.compare({"model": "huge", "optimizer": "adam"}, (0, "1"), (2, "2+1+1"), (3, "4"), steps=5)


@pytest.mark.slow
@pytest.mark.parametrize("size", [str(count) for count in range(1, 9)])
def test_eight_workers_have_the_bits_of_ddp(equality: EqualityRuns, size: str) -> None:
    equality.compare(CNN | {"workers": 8, "samples": 400}, (0, size))
