"""gloo's order of addition: the rule against the installed gloo, and its invariants."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from springtide.training.group.control_channel import Channel
from springtide.training.group.membership import check_order
from springtide.training.reduction import gloo_order


@given(st.integers(0, 5_000_000), st.sampled_from([2, 4, 8]), st.integers(1, 16))
def test_chunks_cover_every_element_once(elements: int, element_bytes: int, ranks: int) -> None:
    chunks = gloo_order.cut_chunks(elements, element_bytes, ranks)
    bounds = [0, *(chunk.stop for chunk in chunks)]
    assert [chunk.start for chunk in chunks] == bounds[:-1]
    assert bounds[-1] == elements
    assert len(chunks) <= ranks


@given(st.integers(1, 16), st.integers(0, 15))
def test_every_rank_is_added_once_and_its_own_chunk_last(ranks: int, chunk: int) -> None:
    order = gloo_order.fold_order(chunk % ranks, ranks)
    assert sorted(order) == list(range(ranks))
    assert order[-1] == chunk % ranks


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rule_equals_the_installed_gloo(ranks: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(ranks)
    for elements in (1, 7, 1000, 30_001):
        inputs = [torch.randn(elements, generator=generator).mul_(3 ** (rank + 1)).to(dtype) for rank in range(ranks)]
        assert torch.equal(gloo_order.add_in_order(inputs), gloo_order.all_reduce_in_threads(inputs))


def test_several_segments_per_rank_follow_the_rule() -> None:
    inputs = [torch.randn(2_200_000, generator=torch.Generator().manual_seed(rank)) for rank in range(4)]
    assert torch.equal(gloo_order.add_in_order(inputs), gloo_order.all_reduce_in_threads(inputs))


def test_plain_rank_order_is_another_sum() -> None:
    inputs = [torch.randn(1000, generator=torch.Generator().manual_seed(rank)) for rank in range(4)]
    plain = ((inputs[0] + inputs[1]) + inputs[2]) + inputs[3]
    assert not torch.equal(gloo_order.add_in_order(inputs), plain)


def test_self_test_passes_on_this_torch_and_notices_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gloo_order.check_installed(3)
    monkeypatch.setattr(gloo_order, "fold_order", lambda chunk, ranks: tuple(range(ranks)))
    assert not gloo_order.check_installed(3)


def test_another_order_of_addition_is_said_with_what_it_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_order(4, Channel(None, "p0"))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(gloo_order, "fold_order", lambda chunk, ranks: tuple(range(ranks)))
    assert not check_order(4, Channel(None, "p0"))
    assert "not to stock DistributedDataParallel" in capsys.readouterr().err
