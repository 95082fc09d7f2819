"""A job driven through a fixed schedule: which roster from which step on, and at which steps a process is killed.

What `verify`, tests and benchmarks use to disturb a run at exact steps. The job holds after each step named, so the
schedule is followed however fast the steps are.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from springtide.errors import JobError
from springtide.training.verification.supervision import ScriptedJob, Supervisor

Counts = tuple[int, ...]


def follow(
    job: ScriptedJob,
    rosters: Sequence[tuple[int, Counts]],
    kills: Sequence[int] = (),
    timeout_s: float = 300.0,
    fork_socket: Path | None = None,
) -> Supervisor:
    """Run a job to its end under a schedule, and return its closed supervisor with all events.

    `rosters` are (step, logical workers per process), the first from step 0 on; `kills` are steps after which the
    last process gets SIGKILL, once each. A killed job needs a checkpoint folder, or it starts from step 0 again.
    """
    if not rosters or rosters[0][0] != 0:
        raise JobError("a schedule needs a roster from step 0 on")
    changes = dict(rosters[1:])
    holds = ",".join(str(step) for step in sorted({*changes, *kills}))
    left = list(kills)
    held = replace(job, settings=replace(job.settings, hold_at=holds))
    with Supervisor(held, fork_socket=fork_socket) as supervisor:
        supervisor.start(rosters[0][1])
        while (step := supervisor.wait_for_hold(timeout_s)) is not None:
            if step in left:
                left.remove(step)
                kill_last(supervisor)
            else:
                if step in changes:
                    supervisor.rescale(changes.pop(step))
                supervisor.go()
                supervisor.wait_for_rescale(timeout_s)
        supervisor.wait(timeout_s)
    return supervisor


def kill_last(supervisor: Supervisor) -> None:
    """Kill the process of the highest rank and wait until the supervisor has started all anew."""
    restarts = supervisor.restarted
    supervisor.kill(len(supervisor.roster.names) - 1)
    supervisor.wait_for(lambda: supervisor.restarted > restarts)
