"""Full collections leave out what has survived one, until all is looked through again."""

import gc
from weakref import ref

from springtide.control.memory_sweeps import WHOLE_S, Sweeps, shorten_sweeps


class Ring:
    """A cycle of its own."""

    def __init__(self) -> None:
        self.itself = self


def test_what_survives_is_left_out_until_everything_is_looked_at() -> None:
    now_s = [0.0]
    sweeps = Sweeps(lambda: now_s[0])
    gc.callbacks.append(sweeps)
    try:
        ring = Ring()
        gc.collect()
        assert gc.get_freeze_count() > 0
        lost, kept = ref(ring), Ring()
        del ring
        gc.collect()
        assert lost() is not None  # it has survived one, and nobody looks at it again yet
        young = ref(kept)
        del kept
        now_s[0] = WHOLE_S
        gc.collect()
        assert lost() is None and young() is None
    finally:
        gc.callbacks.remove(sweeps)
        gc.unfreeze()


def test_a_cycle_that_has_survived_nothing_is_found_at_once() -> None:
    sweeps = Sweeps(lambda: 1.0)
    gc.callbacks.append(sweeps)
    try:
        gc.collect()
        ring = Ring()
        gone = ref(ring)
        del ring
        gc.collect()
        assert gone() is None
    finally:
        gc.callbacks.remove(sweeps)
        gc.unfreeze()


def test_one_process_has_one_rule() -> None:
    try:
        assert shorten_sweeps() is shorten_sweeps()
        assert sum(isinstance(one, Sweeps) for one in gc.callbacks) == 1
    finally:
        gc.callbacks[:] = [one for one in gc.callbacks if not isinstance(one, Sweeps)]
        gc.unfreeze()
