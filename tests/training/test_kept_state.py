"""What a script has beside its model comes back after a kill, moves at a rescale, and does not act twice."""

from tests.training.equality import SCRIPTS, EqualityRuns

from springtide.verification.digest_compare import find_difference

KEEPING = SCRIPTS / "keeping.py"
STEPS = 10


def test_averages_hidden_states_and_schedules_survive_kills_and_rescales(equality: EqualityRuns) -> None:
    stock = equality.run_script(KEEPING, [(0, "4")], mode="reference")
    saved = {"checkpoint_dir": equality.new_folder(), "checkpoint_every_steps": 2}
    ours = equality.run_script(KEEPING, [(0, "1"), (3, "3"), (7, "2")], [5, 9], **saved)
    assert len(stock) == STEPS
    assert any(name.startswith("alive ema") for name in stock[STEPS])
    assert any(name.startswith("alive slow") for name in stock[STEPS])  # which nobody was given
    assert find_difference(stock, ours) is None
