"""What spot costs: Young's interval where it holds, simulation beyond, both against the exact renewal formula."""

from itertools import pairwise

import numpy as np
import pytest

from springtide.cloud.spot import NO_LOSS, SpotTerms, find_loss

TERMS = SpotTerms(revocations_per_node_h=0.1, checkpoint_s=20, restart_s=300)


def expect_share(rate_per_s: float, every_s: float, terms: SpotTerms) -> float:
    """The exact long-run share: t over the mean time to finish a piece (Daly 2006, with revocable restarts)."""
    piece = np.expm1(rate_per_s * (every_s + terms.checkpoint_s)) / rate_per_s
    return float(every_s / (piece * np.exp(rate_per_s * terms.restart_s)))


def test_young_by_hand() -> None:
    """One node, 0.1/h: t = sqrt(2 x 20 x 36000) = 1200 s; loss = 20/1200 + (600 + 300)/36000 = 1/24."""
    loss = find_loss(1, TERMS)
    assert loss.checkpoint_every_s == pytest.approx(1200)
    assert loss.share == pytest.approx(1 - 1 / 24)
    assert not loss.simulated


@pytest.mark.parametrize("nodes", [1, 4, 16, 64, 256])
def test_the_share_is_close_to_the_exact_one(nodes: int) -> None:
    loss = find_loss(nodes, TERMS)
    assert loss.share == pytest.approx(expect_share(nodes * 0.1 / 3600, loss.checkpoint_every_s, TERMS), rel=0.02)
    assert loss.simulated == (nodes >= 16)


def test_the_share_falls_with_nodes_and_stays_a_share() -> None:
    shares = [find_loss(nodes, TERMS).share for nodes in range(1, 65)]
    assert all(0 < share < 1 for share in shares)
    # Young errs on the safe side by up to 2 %, so the step to simulated shares may rise by that.
    assert all(after < 1.02 * before for before, after in pairwise(shares))


def test_no_revocations_no_loss() -> None:
    assert find_loss(8, SpotTerms(revocations_per_node_h=0)) == NO_LOSS
