"""What a script leaves on its models and optimizers between steps is there after a kill and in whoever joins."""

import pytest
from tests.training.equality import SCRIPTS, EqualityRuns

from springtide.verification.digest_compare import Records, find_difference

LEAVING = SCRIPTS / "leaving.py"
STEPS = 10


@pytest.fixture(scope="module")
def stock(equality: EqualityRuns) -> Records:
    return equality.run_script(LEAVING, [(0, "4")], mode="reference", max_steps=STEPS)


@pytest.mark.parametrize("change", [[(0, "1"), (3, "3"), (7, "2")], [(0, "2"), (5, "4"), (8, "1+3")]])
def test_it_moves_with_a_rescale(equality: EqualityRuns, stock: Records, change: list[tuple[int, str]]) -> None:
    assert len(stock) == STEPS
    assert find_difference(stock, equality.run_script(LEAVING, change, max_steps=STEPS)) is None


def test_it_comes_back_after_kills(equality: EqualityRuns, stock: Records) -> None:
    saved = {"checkpoint_dir": equality.new_folder(), "checkpoint_every_steps": 1}
    ours = equality.run_script(LEAVING, [(0, "2")], [3, 5, 7, 9], max_steps=STEPS, **saved)
    assert find_difference(stock, ours) is None
