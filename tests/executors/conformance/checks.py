"""The contract of `protocol.Executor`, check by check; each is one function of a fresh `Trial` that raises if broken.

Every function here that is named `check_` is one; `CHECKS` is all of them, each run by `run_check`. They say nothing
about how fast anything is, nor about what only one executor can do (logs, gangs, interpreters).
"""

from collections.abc import Callable

from tests.executors.conformance.trials import ENDLESS, WORKERS, Behaviour, Harness, Trial, require

from springtide.executors.protocol import (
    FINAL,
    Cancel,
    Checkpointed,
    Event,
    Failed,
    Faulted,
    Finished,
    Ignored,
    Probed,
    Progressed,
    Resize,
    Resized,
    ScriptInfo,
    Started,
    Stop,
    Stopped,
)

Check = Callable[[Trial], None]
STATES = ("starting", "running", "resizing", "recovering", "stopping")


def run_check(harness: Harness, check: Check, job: str) -> None:
    """Run one check with a job of this name, which no other has had; whatever runs afterwards is cancelled."""
    trial = Trial(harness, job)
    try:
        check(trial)
    finally:
        if trial.find() is not None:
            ended = len(trial.of(Stopped))
            trial.send(Cancel)
            trial.await_event(Stopped, ended + 1)


def check_a_job_runs_to_its_end(trial: Trial) -> None:
    """Started, what the script says of itself, progress, and one last word; then it holds nothing."""
    trial.start(Behaviour(steps=20))
    finished = trial.await_event(Finished)
    info = trial.of(ScriptInfo)[0]
    require((info.logical_workers, info.total_steps) == (WORKERS, 20), f"the script says otherwise: {info}")
    require(trial.of(Started)[0].step == 0 and trial.of(Started)[0].devices == trial.first, f"{trial.of(Started)}")
    require(finished.step == 20 == trial.of(Progressed)[-1].step, f"not told up to its last step: {trial.heard}")
    require(isinstance(trial.heard[-1], Finished), f"something was said after the end: {trial.heard[-3:]}")
    require(trial.find() is None, "a finished job holds devices")


def check_what_runs_is_shown(trial: Trial) -> None:
    """`running()` names the job with its generation, devices, state and step, from the start on."""
    trial.start()
    found = trial.find()
    require(found is not None and (found.generation, found.devices) == (1, trial.first), f"running shows {found}")
    require(found is not None and found.state in STATES, f"no state of the protocol: {found}")
    trial.await_step(3)
    names = [one.job for one in trial.executor.running()]
    require(names == sorted(names), f"running is not by name: {names}")


def check_an_instruction_acts_once(trial: Trial) -> None:
    """The same instruction sent again does nothing and says nothing, while the job runs and after its end."""
    start = trial.start(Behaviour(steps=10))
    trial.executor.apply([start, start])
    trial.await_event(Finished)
    trial.executor.apply([start])
    trial.stay_quiet()
    require(len(trial.of(Started)) == 1 and trial.find() is None, f"a repeated start acted: {trial.heard}")


def check_an_old_generation_is_ignored_with_a_word(trial: Trial) -> None:
    """Another instruction under a generation not newer than the newest is answered by `Ignored`, and not obeyed."""
    start = trial.start()
    trial.executor.apply([Resize(job=trial.job, generation=start.generation, key="other", devices=trial.both)])
    ignored = trial.await_event(Ignored)
    require((ignored.key, ignored.seen) == ("other", start.generation), f"{ignored}")
    found = trial.find()
    require(found is not None and found.devices == trial.first, f"an old resize was obeyed: {found}")


def check_an_empty_list_is_no_error(trial: Trial) -> None:
    """Applying nothing does nothing."""
    trial.executor.apply([])
    trial.stay_quiet()


def check_events_are_kept_until_acknowledged(trial: Trial) -> None:
    """Any cursor may be read again until its events are acknowledged; numbers are never used twice."""
    before = trial.cursor
    trial.start(Behaviour(steps=5))
    last = trial.await_event(Finished).seq
    numbers = [event.seq for event in trial.executor.events(before)]
    require(numbers[: last - before] == list(range(before + 1, last + 1)), f"read again, they are {numbers}")
    trial.executor.acknowledge(last - 1)
    require(min(event.seq for event in trial.executor.events(0)) == last, "acknowledged events are still there")
    trial.executor.acknowledge(last)
    trial.send(Stop)
    require(trial.await_event(Stopped).seq == last + 1, "numbers do not go on after an acknowledgement")


def check_a_job_grows_and_shrinks(trial: Trial) -> None:
    """Each resize of a running job is answered by `Resized` with its devices and generation; no fault, no restart."""
    trial.start()
    trial.await_step(2)
    trial.resize(trial.both)
    grown = trial.await_event(Resized)
    require((grown.devices, grown.generation) == (trial.both, 2), f"{grown}")
    trial.resize(trial.both[1:])
    shrunk = trial.await_event(Resized, 2)
    require((shrunk.devices, shrunk.generation) == (trial.both[1:], 3), f"{shrunk}")
    require(shrunk.step >= grown.step > 0 and grown.pause_s >= 0, f"steps went back: {grown}, {shrunk}")
    require(len(trial.of(Started)) == 1 and not trial.of(Faulted), f"not in place: {trial.heard}")


def check_workers_move_between_devices_that_stay(trial: Trial) -> None:
    """A resize may change only how many logical workers each device has."""
    trial.start(devices=trial.both, workers=(3, 1))
    trial.await_step(2)
    trial.resize(trial.both, workers=(1, 3))
    resized = trial.await_event(Resized)
    require((resized.devices, resized.generation) == (trial.both, 2), f"{resized}")
    require(not trial.of(Faulted), f"not in place: {trial.of(Faulted)}")


def check_a_resize_to_what_it_has_is_answered_too(trial: Trial) -> None:
    """Whoever resizes hears of it, even if nothing changes."""
    trial.start()
    trial.await_step(2)
    trial.resize(trial.first)
    require(trial.await_event(Resized).generation == 2, "another generation was answered")


def check_a_resize_while_it_starts_is_followed(trial: Trial) -> None:
    """Devices given before the job runs are those it ends up with, by `Started` or by `Resized`."""
    trial.start()
    trial.resize(trial.both)
    for _ in range(100):
        placed = [event.devices for event in trial.heard if isinstance(event, Started | Resized)]
        if placed and placed[-1] == trial.both:
            return
        trial.harness.wait(trial.cursor)
        trial.listen()
    raise AssertionError(f"the resize was forgotten: {trial.heard}")


def check_what_does_not_run_is_answered_by_stopped(trial: Trial) -> None:
    """Whoever resizes, stops or cancels a job that does not run must learn that it holds nothing."""
    trial.resize(trial.first)
    resized = trial.await_event(Stopped)
    require((resized.generation, resized.clean, resized.cancelled) == (1, False, False), f"{resized}")
    trial.send(Stop, reason="preempted")
    stopped = trial.await_event(Stopped, 2)
    require((stopped.generation, stopped.reason, stopped.cancelled) == (2, "preempted", False), f"{stopped}")
    trial.send(Cancel)
    cancelled = trial.await_event(Stopped, 3)
    require((cancelled.generation, cancelled.cancelled) == (3, True), f"{cancelled}")


def refuse_devices(trial: Trial, devices: tuple[str, ...]) -> None:
    """Devices that cannot be given fail a start, a probe, and a running job that is resized to them."""
    trial.start(devices=devices)
    require_refused(trial, 1)
    trial.probe(devices)
    require_refused(trial, 2)
    trial.start()
    trial.await_event(Started)
    trial.resize(devices)
    require_refused(trial, 3)


def require_refused(trial: Trial, count: int) -> None:
    """The newest instruction was refused for its devices, and the job holds none."""
    failed = trial.await_event(Failed, count)
    require(failed.generation == trial.generation, f"{failed} answers another generation than {trial.generation}")
    require((failed.code, failed.user_fault) == ("bad_devices", False), f"{failed}")
    for _ in range(100):  # its processes may take a moment to end, and say nothing meanwhile
        if trial.find() is None:
            return
        trial.harness.wait(trial.cursor)
    raise AssertionError("a refused job holds devices")


def check_no_devices_are_refused(trial: Trial) -> None:
    """A job cannot run nowhere."""
    refuse_devices(trial, ())


def check_a_device_twice_is_refused(trial: Trial) -> None:
    """A device has room for one process of a job."""
    refuse_devices(trial, trial.first * 2)


def check_a_device_that_is_not_there_is_refused(trial: Trial) -> None:
    """The names of devices are the executor's own."""
    refuse_devices(trial, ("nowhere:7",))


def check_a_stopped_job_goes_on_from_its_last_step(trial: Trial) -> None:
    """Stop checkpoints; the next start begins where the stop said."""
    trial.start()
    trial.await_step(4)
    trial.send(Stop, reason="make room")
    stopped = trial.await_event(Stopped)
    require((stopped.reason, stopped.clean, stopped.cancelled) == ("make room", True, False), f"{stopped}")
    require(stopped.step >= 4 and trial.find() is None, f"{stopped}, running {trial.find()}")
    trial.start()
    again = trial.await_event(Started, 2)
    require((again.step, again.generation) == (stopped.step, 3), f"stopped as {stopped}, went on as {again}")


def check_a_cancelled_job_ends_for_good(trial: Trial) -> None:
    """Cancel is told as `Stopped` with `cancelled`, and the job holds nothing."""
    trial.start(devices=trial.both)
    trial.await_step(2)
    trial.send(Cancel, reason="changed my mind")
    stopped = trial.await_event(Stopped)
    require((stopped.cancelled, stopped.reason) == (True, "changed my mind"), f"{stopped}")
    require(trial.find() is None, "a cancelled job holds devices")


def check_a_job_stopped_before_its_first_step_is_clean(trial: Trial) -> None:
    """There was nothing to save."""
    trial.start()
    trial.send(Stop)
    require(trial.await_event(Stopped).clean, "a job without a step was not stopped cleanly")


def check_a_newer_start_takes_the_place_of_a_running_job(trial: Trial) -> None:
    """The older run ends without a last word; the newer one is the job."""
    trial.start()
    trial.await_event(Started)
    trial.start(Behaviour(steps=8), devices=trial.both[1:])
    finished = trial.await_event(Finished)
    require(finished.generation == 2 and trial.of(Started)[-1].devices == trial.both[1:], f"{trial.heard}")
    require(len([event for event in trial.heard if isinstance(event, FINAL)]) == 1, f"two ends: {trial.heard}")


def check_a_lost_process_costs_steps_since_the_last_checkpoint_only(trial: Trial) -> None:
    """A fault that is not the user's is told and repaired; the job starts again by itself, from a checkpoint."""
    trial.start(devices=trial.both)
    saved = trial.await_event(Checkpointed).step
    trial.harness.kill(trial.job)
    fault = trial.await_event(Faulted)
    require((fault.cause, fault.user_fault) == ("killed", False), f"{fault}")
    require(trial.await_event(Started, 2).step >= saved, f"saved {saved}: {trial.of(Started)}")
    require(not [event for event in trial.heard if isinstance(event, FINAL)], f"a fault ended the job: {trial.heard}")


def check_a_crash_uses_up_retries_then_fails(trial: Trial) -> None:
    """Crashes of the user's code are told as faults of the user while retries are left, then as the end."""
    trial.start(Behaviour(crashes_at=3))
    failed = trial.await_event(Failed)
    require([fault.user_fault for fault in trial.of(Faulted)] == [True], f"faults: {trial.of(Faulted)}")
    require((failed.code, failed.user_fault, failed.exit_code) == ("crashed", True, 1), f"{failed}")
    require(trial.find() is None, "a failed job holds devices")


def check_a_probe_measures_each_share_and_ends(trial: Trial) -> None:
    """Share 1, then share 2 if there is a second device, each with a speed; then nothing is held, and nothing kept."""
    trial.probe(trial.both, max_steps=20, max_s=600.0)
    probed = trial.await_event(Probed)
    require([point.share for point in probed.points] == [1, 2], f"{probed}")
    require(all(point.steps_per_s > 0 for point in probed.points) and probed.pause_s is not None, f"{probed}")
    require(trial.find() is None and not trial.of(Checkpointed), f"a probe left something: {trial.heard}")
    trial.probe(trial.first, max_steps=10, max_s=600.0)
    alone = trial.await_event(Probed, 2)
    require([point.share for point in alone.points] == [1] and alone.pause_s is None, f"{alone}")


def check_a_probe_can_be_stopped(trial: Trial) -> None:
    """It then says `Stopped` and not `Probed`."""
    trial.probe(trial.both, max_steps=100_000, max_s=600.0)
    trial.await_event(Started)
    trial.send(Stop)
    trial.await_event(Stopped)
    require(not trial.of(Probed) and trial.find() is None, f"{trial.heard}")


def check_what_is_done_is_told_under_its_generation(trial: Trial) -> None:
    """Events carry the generation of the instruction that the job was carrying out."""
    trial.start(ENDLESS, generation=5)
    trial.generation = 5
    trial.await_step(2)
    told: list[Event] = [*trial.of(Started), *trial.of(ScriptInfo)]
    require({event.generation for event in told} == {5}, f"{told}")


CHECKS: tuple[Check, ...] = tuple(value for name, value in list(globals().items()) if name.startswith("check_"))
