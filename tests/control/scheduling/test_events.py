"""What events mean for the records, where clocks and counters disagree."""

from pathlib import Path

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.executors.protocol import Finished, Progressed

BOOTED_S = 5000.0


@pytest.fixture
def stage(tmp_path: Path) -> HandClockServer:
    made = HandClockServer(tmp_path)
    made.source.steady = BOOTED_S
    made.restart()
    return made


@pytest.mark.parametrize("jump_s", [-3600.0, 0.0, 3600.0])
def test_a_wall_clock_that_was_set_makes_no_event_old(stage: HandClockServer, jump_s: float) -> None:
    job = stage.submit()
    clock = stage.reconciler.context.clock
    finished = Finished(job=job.id, generation=1, step=1, at_s=stage.source.wall, steady_s=stage.source.steady)
    stage.source.wall += jump_s
    stage.source.pass_s(2.0)
    stage.reconciler.read_clock()
    assert stage.reconciler.event_handler.find_moment(finished) == clock.now_s()


@pytest.mark.parametrize("steady_s", [BOOTED_S, BOOTED_S + 1e6, None], ids=["same boot", "earlier boot", "no counter"])
def test_an_event_that_waited_counts_from_when_it_happened(stage: HandClockServer, steady_s: float | None) -> None:
    job = stage.submit()
    happened_s = stage.reconciler.context.clock.now_s()
    finished = Finished(job=job.id, generation=1, step=1, at_s=stage.source.wall, steady_s=steady_s)
    stage.source.pass_s(60.0)
    stage.reconciler.read_clock()
    assert stage.reconciler.event_handler.find_moment(finished) == pytest.approx(happened_s)


def test_a_jump_between_two_reports_teaches_no_speed(stage: HandClockServer) -> None:
    job = stage.submit()
    stage.pass_s(10.0)
    staging = stage.reconciler.context.staging
    handler = stage.reconciler.event_handler
    record = staging.jobs[job.id]
    for number, wall_s in enumerate((0.0, 3600.0 + 4.0)):
        step = record.step + 1 + 40 * number
        handler.handle(
            Progressed(
                job=job.id,
                generation=record.generation,
                step=step,
                total_steps=None,
                epoch=0,
                steps_per_s=10.0,
                outside_s=0.0,
                share=2,
                at_s=wall_s,
                steady_s=BOOTED_S + 4.0 * number,
            )
        )
    speed = staging.speeds[record.speed_key]["cpu"]
    assert speed.points[2][1] > 1.0
