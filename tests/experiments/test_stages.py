"""EasyScale's three stages on real processes: each level keeps what it promises, and D0 shows what the order is for."""

import pytest
from experiments.easyscale.consistency import PROMISED, find_spans, tabulate

PER_STAGE = 3


def test_equal_steps_become_spans() -> None:
    assert find_spans([True, True, False, True]) == [(0.5, 2.0), (3.5, 1.0)]
    assert find_spans([False]) == []


def test_equality_is_by_every_bit() -> None:
    ours, other = (0.1).hex(), (0.1 + 2**-56).hex()
    table = tabulate({"DDP-homo": [ours], "DDP-heter": [other], "D1": [ours]}, 1)
    assert [row["equals_ddp_homo"] for row in table.records()] == [True, False, True]


@pytest.mark.slow
def test_each_level_keeps_its_promise() -> None:
    from experiments.stages import VARIANTS, run_variants

    found = run_variants("cnn", 16, PER_STAGE)
    assert all(len(found["losses"][variant.name]) == 3 * PER_STAGE for variant in VARIANTS)
    for (name, reference), stages in PROMISED.items():
        step = found["differs"][name][reference]
        assert step is None or step > stages * PER_STAGE
    assert found["differs"]["D1+D2"]["DDP-heter"] is None
    assert found["differs"]["D0"]["DDP-homo"] == PER_STAGE + 1
    assert found["differs"]["D1"]["DDP-homo"] == 2 * PER_STAGE + 1
