"""Uneven mappings: more logical workers on faster devices, and single workers that change processes, by bits.

Device types are emulated on one CPU, as in `test_operators`: what differs is in the environment of each process.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.training.equality import EqualityRuns

from springtide.errors import TrainingError
from springtide.verification.digest_compare import Records, find_difference, read_records
from springtide.verification.scripted_jobs import ScriptedRun, name_slots

CNN: dict[str, Any] = {"model": "cnn"}
#: Two threads and all instructions, against one thread and the oldest kernels of oneDNN and MKL.
FAST = {"SPRINGTIDE_THREADS": "2"}
SLOW = {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
#: Also draws other random numbers, so that at D1 it would differ before the first product.
OLDEST = {**SLOW, "ATEN_CPU_CAPABILITY": "default"}
MAPPINGS = ((3, 1), (2, 2), (1, 3))
CHANGES = (3, 6)


def run_mapped(
    equality: EqualityRuns, level: str, devices: tuple[dict[str, str], ...]
) -> tuple[Records, list[int | None]]:
    """The records of a run through all mappings on two devices, and the ends of the processes it had."""
    folder = equality.new_folder()
    held = ",".join(map(str, CHANGES))
    job = equality.job(CNN, trace_dir=folder, max_steps=9, level=level, hold_at=held)
    typed = replace(job, devices=dict(zip(name_slots(2), devices, strict=False)))
    with ScriptedRun(typed, equality.host, MAPPINGS[0]) as run:
        for before, after in pairwise(MAPPINGS):
            assert run.wait_for_hold() in CHANGES
            assert run.counts == before
            run.resize(after)
            run.go()
            run.wait_for_resize()
        run.wait()
        assert run.restarts.count == 0
        return read_records(folder), run.codes


def test_single_workers_migrate_between_live_processes_with_the_bits_of_ddp(equality: EqualityRuns) -> None:
    records, processes = run_mapped(equality, "D1", ())
    assert len(processes) == 2, "no process is started or restarted for a migration"
    assert find_difference(equality.reference(CNN, 9), records) is None


def test_d2_on_two_device_types_has_the_bits_of_ddp_at_d2(equality: EqualityRuns) -> None:
    reference, _ = equality.run(CNN, [(0, "4")], steps=9, mode="reference", level="D2")
    records, processes = run_mapped(equality, "D2", (FAST, OLDEST))
    assert len(processes) == 2
    assert find_difference(reference, records) is None


def test_d1_with_other_instructions_in_one_process_is_refused_by_name(equality: EqualityRuns) -> None:
    with pytest.raises(TrainingError, match="computes with kernels DEFAULT, the first process with"):
        run_mapped(equality, "D1", (FAST, OLDEST))


def test_d1_on_two_device_types_does_not(equality: EqualityRuns) -> None:
    records, _ = run_mapped(equality, "D1", (FAST, SLOW))
    assert find_difference(equality.reference(CNN, 9), records) is not None
