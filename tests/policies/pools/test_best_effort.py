"""Best-effort jobs on several types: one device each, growth that pays, and promised devices given up at once."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.core.decisions import JobView, Progress, Status
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.core.typed_curves import Mix
from springtide.policies.pools.best_effort import share_out
from springtide.throughput.heterogeneous import DeviceSpeed, Level, LogicalWorkers

CLUSTER = parse_cluster("1x4:fast,1x4:slow")
TOTALS = CLUSTER.totals
SPEEDS = {"fast": DeviceSpeed(1.0), "slow": DeviceSpeed(2.0)}
D1, D2 = Level(), Level(mixes=True)
PAUSE = Overhead(20.0)


def make_guest(index: int, steps: float, workers: int = 8, level: Level = D2, held: Mix | None = None) -> JobView:
    """A best-effort job that holds a mix."""
    typed = LogicalWorkers(workers, SPEEDS).type_curves(TOTALS, level)
    job = Job(JobId(f"j{index}"), index, 0.0, steps, typed.curves["fast"], overhead=PAUSE, typed=typed)
    return hold(JobView(job, Progress(steps), Status.ADMITTED), held or {})


def hold(view: JobView, mix: Mix) -> JobView:
    """The same job on a mix, its pause over."""
    assert view.job.typed is not None
    first_device_type = view.first_device_type or next(iter(mix), "")
    progress = replace(view.progress, rate=view.job.typed.rate(mix))
    return replace(view, progress=progress, share=sum(mix.values()), mix=mix, first_device_type=first_device_type)


def give(*views: JobView, free: Mix = TOTALS) -> dict[str, Mix]:
    """What each job gets of these devices."""
    return {str(job_id): mix for job_id, mix in share_out(0.0, views, free).items()}


def test_a_job_alone_takes_every_type_it_can_use() -> None:
    assert give(make_guest(0, 1000, 12)) == {"j0": {"fast": 4, "slow": 4}}
    assert give(make_guest(0, 1000, 12, D1)) == {"j0": {"fast": 4}}


def test_one_device_for_each_in_order_of_arrival_before_anyone_has_more() -> None:
    mixes = give(*(make_guest(index, 1000 - index) for index in range(8)))
    assert all(sum(mix.values()) == 1 for mix in mixes.values())
    too_many = give(*(make_guest(index, 1000 - index) for index in range(10)))
    assert {name for name, mix in too_many.items() if not mix} == {"j8", "j9"}


def test_a_short_job_does_not_wait_for_long_ones() -> None:
    long = [make_guest(0, 900, held={"fast": 4}), make_guest(1, 900, held={"slow": 4})]
    mixes = give(*long, make_guest(2, 20))
    assert mixes["j2"].get("fast", 0) >= 2 and all(mixes.values())


def test_a_higher_priority_goes_first_and_takes_the_only_device_if_need_be() -> None:
    guests = [make_guest(0, 900), make_guest(1, 60)]
    urgent = replace(guests[0], job=replace(guests[0].job, priority=1))
    assert give(urgent, guests[1])["j0"].get("fast", 0) == 3  # all but the one device that j1 starts on
    assert give(*guests)["j1"].get("fast", 0) > 1
    held = hold(guests[1], {"fast": 1})
    assert give(urgent, held, free={"fast": 1, "slow": 0}) == {"j0": {"fast": 1}, "j1": {}}
    assert give(held, guests[0], free={"fast": 1, "slow": 0}) == {"j1": {"fast": 1}, "j0": {}}


def test_a_job_that_may_not_change_its_type_stays_even_if_a_faster_one_is_idle() -> None:
    assert give(make_guest(0, 1000, 4, D1, held={"slow": 2})) == {"j0": {"slow": 4}}
    other = make_guest(1, 1000, 4, D1, held={"fast": 2})
    assert give(make_guest(0, 1000, 4, D1, held={"slow": 2}), other) == {"j0": {"slow": 4}, "j1": {"fast": 4}}


def test_a_change_that_saves_less_than_its_pauses_is_not_made() -> None:
    near_end = make_guest(0, 15, 4, held={"fast": 2})  # 30 s to go; 15 s and a pause on all four
    assert give(near_end) == {"j0": {"fast": 2}}
    assert give(make_guest(0, 200, 4, held={"fast": 2})) == {"j0": {"fast": 4}}


def test_devices_that_promises_need_are_given_up_where_it_costs_least() -> None:
    views = [make_guest(0, 900, 4, held={"fast": 3}), make_guest(1, 900, 4, held={"fast": 1})]
    mixes = give(*views, free={"fast": 3, "slow": 0})
    assert mixes == {"j0": {"fast": 2}, "j1": {"fast": 1}}  # on two or three devices alike some have two workers
    assert give(*views, free={"fast": 1, "slow": 0}) == {"j0": {"fast": 1}, "j1": {}}
    assert give(*views, free={"fast": 0, "slow": 0}) == {"j0": {}, "j1": {}}


rows = st.lists(
    st.tuples(
        st.integers(5, 2000), st.integers(1, 12), st.sampled_from((D1, D2)), st.sampled_from((None, "fast", "slow"))
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=100, deadline=None)
@given(rows=rows, promised=st.tuples(st.integers(0, 4), st.integers(0, 4)))
def test_what_is_given_is_free_usable_and_leaves_nobody_out(
    rows: list[tuple[int, int, Level, str | None]], promised: tuple[int, int]
) -> None:
    free = {device_type: total - taken for (device_type, total), taken in zip(TOTALS.items(), promised, strict=True)}
    left, views = dict(free), []
    for index, (steps, workers, level, device_type) in enumerate(rows):
        held = {device_type: 1} if device_type and left[device_type] else {}
        left = {name: count - held.get(name, 0) for name, count in left.items()}
        views.append(make_guest(index, float(steps), workers, level, held))
    mixes = share_out(0.0, views, free)
    for device_type, count in free.items():
        assert sum(mix.get(device_type, 0) for mix in mixes.values()) <= count
    for view in views:
        mix, typed = mixes[view.job.id], view.job.typed
        assert typed is not None and not typed.objection(mix, view.first_device_type)
        assert not mix or typed.rate(mix) > 0
    if all(view.job.typed.movable for view in views if view.job.typed) and len(views) <= min(free.values()):
        assert all(mixes.values())
