"""Kernels that are compiled later: uncompiled until asked, and the same decisions before, during and after."""

import subprocess
import sys
from math import inf
from pathlib import Path
from textwrap import dedent

import pytest
from tests.policies.replays import JobSketch, run

from springtide.core.jobs import Overhead
from springtide.policies import elasticflow, springtide
from springtide.policies.planning import filling

PROGRAM = dedent(
    """
    import sys

    from springtide.core.curves import Curve
    from springtide.core.devices import Cluster, NodeGroup
    from springtide.core.jobs import Job, JobId, Overhead
    from springtide.core.world import World
    from springtide.policies import decide, find_policy
    from springtide.policies.planning import columns, compilation, filling

    def decide_all():
        world, told = World(Cluster((NodeGroup(1, 4, "cpu"),))), []
        for index in range(12):
            now_s, deadline_s = 10.0 * index, float("inf") if index % 3 == 2 else 10.0 * index + 60.0 + 40.0 * index
            curve = Curve((1, 2, 4), (1.0, 1.8, 3.1))
            work = 20.0 + 13.0 * (index % 5)
            world.arrive(Job(JobId(str(index)), index, now_s, work, curve, deadline_s, overhead=Overhead(1.0)), now_s)
            decision = decide(find_policy("springtide"), now_s, world.snapshot())
            told.append((dict(decision.answers), dict(decision.promises), dict(decision.allocations)))
            world.apply(decision, now_s)
        return told

    plain = decide_all()
    assert "numba" not in sys.modules, "nothing was to be compiled yet"
    thread = compilation.start_compiling(filling, columns.make_samples())
    meanwhile = decide_all()
    thread.join()
    kernels = {name: found for name, found in vars(filling).items() if hasattr(found, "signatures")}
    assert "fill" in kernels, "callers meet the compiled kernels"
    before = {name: len(found.signatures) for name, found in kernels.items()}
    assert plain == meanwhile == decide_all()
    assert {name: len(found.signatures) for name, found in kernels.items()} == before
    compilation.compile_kernels(filling, columns.make_samples())
    assert all(vars(filling)[name] is found for name, found in kernels.items()), "it is done once"
    print("equal")
    """
)


def test_kernels_compiled_later_decide_as_before() -> None:
    pytest.importorskip("numba")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "equal", done.stderr


BROKEN_IMPORT = dedent(
    """
    import builtins, logging, sys
    from itertools import count

    from springtide.policies.planning import columns, compilation, filling

    whole_import, imports = builtins.__import__, count()

    def fail_half_way(name, scope=None, *more):
        if (scope or {}).get("__name__", "").startswith("numba") and next(imports) == int(sys.argv[1]):
            raise RuntimeError("made")
        return whole_import(name, scope, *more)

    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    builtins.__import__ = fail_half_way
    compilation.start_compiling(filling, columns.make_samples()).join()
    builtins.__import__ = whole_import
    assert not hasattr(filling.fill, "signatures"), "the plain ones go on"
    compilation.compile_kernels(filling, columns.make_samples())
    assert hasattr(filling.fill, "signatures")
    """
)


@pytest.mark.parametrize("which", [5, 300])
def test_an_import_that_ended_half_way_is_told_and_can_be_made_again(which: int) -> None:
    pytest.importorskip("numba")
    command = [sys.executable, "-c", BROKEN_IMPORT, str(which)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the planner could not be compiled") and "RuntimeError: made" in done.stdout


def test_after_warming_up_nothing_is_left_to_compile() -> None:
    pytest.importorskip("numba")
    elasticflow.warm_up()
    kernels = [kernel for kernel in vars(filling).values() if hasattr(kernel, "signatures")]
    assert kernels and all(kernel.signatures for kernel in kernels)
    before = [list(kernel.signatures) for kernel in kernels]
    jobs = [
        JobSketch(20.0, 3.0 * n, deadline_s=40.0 + 5.0 * n if n % 4 else inf, overhead=Overhead(1.0)) for n in range(9)
    ]
    run(springtide.springtide, jobs, "2x4:cpu")
    assert [list(kernel.signatures) for kernel in kernels] == before


CALLER = """
from called import number
from springtide.policies.planning.compilation import kernel

@kernel
def read(one: int) -> int:
    return one + number(one)
"""
CALLED = """
from springtide.policies.planning.compilation import kernel

@kernel
def number(one: int) -> int:
    return {}
"""
COMPILE = """
import caller
from springtide.policies.planning.compilation import compile_kernels

compile_kernels(caller, {int: 0})
assert caller.read.signatures
print(caller.read(1))
"""


def test_a_kernel_is_compiled_again_when_what_it_calls_in_another_module_has_changed(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    (tmp_path / "caller.py").write_text(CALLER)
    told = []
    for number in (10, 20):
        (tmp_path / "called.py").write_text(CALLED.format(number))
        command = [sys.executable, "-c", COMPILE]
        told.append(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300))
        assert list((tmp_path / "__pycache__").glob("caller.*.nbi")), told[-1].stderr  # it is kept for the next time
    assert [one.stdout for one in told] == ["11\n", "21\n"], told[-1].stderr
