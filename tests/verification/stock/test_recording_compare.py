"""The first difference of two recordings: by hand."""

from springtide.verification.stock.recording_compare import Parting, find_parting, find_rank_that_differs
from springtide.verification.stock.step_recordings import (
    RankRecording,
    RecordedOptimizer,
    RecordedParameter,
    RecordedStep,
    StepRecording,
)
from springtide.verification.stock.stock_verify import say_difference

PARAMETERS = (
    RecordedParameter("fc.weight", "torch.float32", (4, 2)),
    RecordedParameter("fc.bias", "torch.float32", (4,)),
)
ADAM = RecordedOptimizer("Adam", PARAMETERS)


def make_rank(rank: int, *digests: str, optimizers: tuple[RecordedOptimizer, ...] = (ADAM,)) -> RankRecording:
    """A rank of one optimizer; each word holds the digest of each parameter after a step, a letter each."""
    steps = (RecordedStep(0, number, tuple(word)) for number, word in enumerate(digests, 1))
    return RankRecording(rank, 0, optimizers, tuple(steps))


def make_recording(*ranks: RankRecording) -> StepRecording:
    return StepRecording(("python", "train.py"), {}, 1, ranks, 0.0)


def test_equal_runs_do_not_part() -> None:
    one = make_recording(make_rank(0, "ab", "cd"), make_rank(1, "ab", "cd"))
    assert find_parting(one, one) is None
    assert find_rank_that_differs(one) is None


def test_the_earliest_step_then_the_lowest_rank_is_named() -> None:
    reference = make_recording(*(make_rank(rank, "ab", "cd", "ef") for rank in range(3)))
    run = make_recording(make_rank(0, "ab", "cd", "xx"), make_rank(1, "ab", "cx", "xx"), make_rank(2, "ab", "xx", "xx"))
    difference = find_parting(reference, run)
    assert difference is not None
    assert (difference.parting, difference.step, difference.rank) == (Parting.VALUES, 2, 1)
    assert (difference.tensor, difference.differing, difference.tensors) == ("fc.bias", 1, 2)
    assert say_difference(difference, 1) == "step 2, rank 1, fc.bias (1 of 2 tensors differ)"


def test_ranks_that_the_other_run_does_not_have_are_compared_with_its_first() -> None:
    two = make_recording(make_rank(0, "ab"), make_rank(1, "ab"))
    four = make_recording(*(make_rank(rank, "ab") for rank in range(3)), make_rank(3, "ax"))
    for reference, run in ((two, four), (four, two)):
        difference = find_parting(reference, run)
        assert difference is not None
        assert {difference.rank, difference.against_rank} == {0, 3}


def test_a_run_that_ends_early_is_not_identical() -> None:
    long, short = make_recording(make_rank(0, "ab", "cd")), make_recording(make_rank(0, "ab"))
    for reference, run in ((long, short), (short, long)):
        difference = find_parting(reference, run)
        assert difference is not None
        assert (difference.parting, difference.step) == (Parting.LENGTH, 2)


def test_other_shapes_and_other_orders_are_told_from_other_values() -> None:
    whole = make_recording(make_rank(0, "ab"))
    shard = RecordedOptimizer("Adam", (RecordedParameter("fc.weight", "torch.float32", (2, 2)), PARAMETERS[1]))
    sharded = find_parting(whole, make_recording(make_rank(0, "xb", optimizers=(shard,))))
    assert sharded is not None and sharded.parting is Parting.PARAMETERS
    swapped = RankRecording(0, 0, (ADAM, ADAM), (RecordedStep(1, 1, ("a", "b")),))
    order = find_parting(whole, make_recording(swapped))
    assert order is not None and order.parting is Parting.ORDER


def test_ranks_of_one_run_that_differ_are_found() -> None:
    apart = find_rank_that_differs(make_recording(make_rank(0, "ab", "cd"), make_rank(1, "ab", "cx")))
    assert apart is not None
    assert (apart.rank, apart.step, apart.tensor) == (1, 2, "fc.bias")
