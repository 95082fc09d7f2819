"""A sampler that remembers something: a process that joins or resumes without it is refused, with it has the bits."""

import pytest
from tests.training.equality import SCRIPTS, EqualityRuns

from springtide.errors import TrainingError
from springtide.verification.digest_compare import find_difference

MINING = SCRIPTS / "mining.py"
REFUSED = "sampler WeightedRandomSampler gave another order for epoch {} than before"


@pytest.mark.parametrize("step", [6, 8])
def test_a_process_that_joins_without_it_is_refused(equality: EqualityRuns, step: int) -> None:
    with pytest.raises(TrainingError, match=REFUSED.format("[12]")):
        equality.run_script(MINING, [(0, "1"), (step, "2")])


def test_a_process_that_resumes_without_it_is_refused(equality: EqualityRuns) -> None:
    saved = {"checkpoint_dir": equality.new_folder(), "checkpoint_every_steps": 2}
    with pytest.raises(TrainingError, match=REFUSED.format(1)):
        equality.run_script(MINING, [(0, "2")], [7], **saved)


def test_kept_in_the_state_of_the_run_it_has_the_bits(equality: EqualityRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINING_KEEPS", "1")
    stock = equality.run_script(MINING, [(0, "4")], mode="reference")
    saved = {"checkpoint_dir": equality.new_folder(), "checkpoint_every_steps": 2}
    ours = equality.run_script(MINING, [(0, "1"), (6, "3"), (9, "2")], [7], **saved)
    assert len(stock) == 12
    assert find_difference(stock, ours) is None
