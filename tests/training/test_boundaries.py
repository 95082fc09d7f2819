"""What happens exactly between two epochs, and when the disk gives out: nothing is lost, and the bits stay."""

import pytest
from tests.training.equality import SCRIPTS, EqualityRuns

from springtide.verification.digest_compare import find_difference, read_records
from springtide.verification.scripted_jobs import ScriptedRun

EPOCHS = SCRIPTS / "epochs.py"
STEPS_PER_EPOCH = 5


@pytest.mark.parametrize("sizes", [("1", "4"), ("3+1", "1")])
def test_a_rescale_after_the_last_step_of_an_epoch_takes_place_in_the_next(
    equality: EqualityRuns, sizes: tuple[str, str]
) -> None:
    still = equality.run_script(EPOCHS, [(0, "1")])
    changed = equality.run_script(EPOCHS, [(0, sizes[0]), (STEPS_PER_EPOCH, sizes[1])])
    assert len(still) == 3 * STEPS_PER_EPOCH
    assert find_difference(still, changed) is None


def test_a_checkpoint_after_the_last_step_of_an_epoch_resumes_in_the_next(equality: EqualityRuns) -> None:
    still = equality.run_script(EPOCHS, [(0, "2")])
    saved = {"checkpoint_dir": equality.new_folder(), "checkpoint_every_steps": STEPS_PER_EPOCH}
    killed = equality.run_script(EPOCHS, [(0, "2")], [STEPS_PER_EPOCH + 2], **saved)
    assert find_difference(still, killed) is None


LEFT_AFTER = 3


def test_an_epoch_that_is_left_early_is_not_gone_on_with(equality: EqualityRuns) -> None:
    still = equality.run_script(EPOCHS, [(0, "1")], arguments=(str(LEFT_AFTER),))
    assert len(still) == 3 * LEFT_AFTER
    # A process that joins, and one that resumes, exactly where `break` was: the epoch's lines at its end have run.
    sizes = [(0, "2"), (LEFT_AFTER, "3"), (2 * LEFT_AFTER, "1")]
    assert find_difference(still, equality.run_script(EPOCHS, sizes, arguments=(str(LEFT_AFTER),))) is None
    saved = {"checkpoint_dir": equality.new_folder(), "checkpoint_every_steps": LEFT_AFTER}
    killed = equality.run_script(EPOCHS, [(0, "2")], [LEFT_AFTER + 2], arguments=(str(LEFT_AFTER),), **saved)
    assert find_difference(still, killed) is None and len(killed) == len(still)


def test_a_checkpoint_that_cannot_be_written_is_said_and_training_goes_on(equality: EqualityRuns) -> None:
    saved = equality.new_folder() / "saved"
    asked = {"model": "cnn"}
    folder = equality.new_folder()
    options = {"trace_dir": folder / "trace", "checkpoint_dir": saved, "checkpoint_every_steps": 2, "max_steps": 10}
    with ScriptedRun(equality.job(asked, hold_at="1,7", **options), equality.host, (4,)) as run:
        run.wait_for_hold()
        for path in saved.iterdir():
            path.rmdir()
        saved.rmdir()
        saved.write_text("in the way")
        run.go()
        run.wait_for_hold()
        saved.unlink()
        saved.mkdir()
        run.go()
        run.wait()
        failing = [event for event in run.events if event["event"] == "checkpoint_failing"]
    assert failing
    assert "could not be written" in failing[0]["reason"]
    assert find_difference(equality.reference(asked), read_records(folder / "trace")) is None
    assert list(saved.glob("step-*"))
