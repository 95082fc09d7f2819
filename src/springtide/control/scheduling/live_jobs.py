"""The job as policies see it: what it may run on, how fast it goes there, how much work it has.

Where there are several device types: below D2 the bits depend on the type, so a job stays with the one it first ran on.
At D2 it may change types and hold several at once; its logical workers are then dealt out by the speed of each device.
On a platform of one type none of this has a part: jobs have one curve. A probe is a small job that stands for the one
it measures. What was measured, and how curves are made of it, is in `speeds`; when it will end, in `expected_ends`.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isclose

from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.speeds import expect_curve, learn_point, name_key, plan_curve
from springtide.control.storage.records import JobRecord, SpeedRecord
from springtide.core.curves import Curve
from springtide.core.job_file import JobFile
from springtide.core.jobs import Job, JobId, Overhead, Purpose
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.throughput.heterogeneous import LogicalWorkers, fit_workers

MIXING = "D2"  # the level at which a job may change device types
UNCOUNTED = 1 << 16  # logical workers of a script that has not said how many: as many as anyone could want
# Probes go before every best-effort job; a job that missed its promise comes next.
PROBE_PRIORITY = 1_000_002
MISSED_PRIORITY = 1_000_001
PROBE_START_S = 10.0
PROBE_STEPS = 30
PROBE_S = 15.0
# What an unmeasured best-effort job is taken to be, until it has run: ten minutes of steps of a second.
GUESSED_STEPS = 600
GUESSED_RATE = 1.0
RIGID_GUESS_S = 3600.0
USUAL_STARTUP_S = 5.0
USUAL_PAUSE_S = 1.0
STARTUP_MARGIN = 1.5
SAME = 0.05  # speeds this close are the same: no plan is made anew for less

SpeedsByType = Mapping[str, SpeedRecord]  # by device type


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of a job: its speed on the device types it may use, its total work, its logical workers."""

    speeds: SpeedsByType
    #: The types on which a speed was measured.
    measured: SpeedsByType
    steps: int | None
    workers: int | None
    #: Whether plans add a margin, because somewhere no whole epoch has been seen.
    has_margin: bool

    @property
    def is_complete(self) -> bool:
        """Whether a policy can answer by them: a speed was measured, and the work is known."""
        return bool(self.measured) and self.steps is not None


def look_up(record: JobRecord, speeds: Mapping[str, SpeedsByType], inventory: Inventory) -> JobFacts:
    """What is known of a job, by its record and by the speeds of its code (`speeds` are by the keys of all code)."""
    seen = speeds[record.speed_key]
    known = {one: seen[one] for one in list_device_types(record, inventory) if one in seen}
    steps, asked, workers = record.total_steps, record.spec.steps, record.logical_workers
    for speed in known.values():
        steps, workers = steps or speed.total_steps, workers or speed.logical_workers
    if asked is not None:
        steps = asked if steps is None else min(asked, steps)
    measured = {device_type: speed for device_type, speed in known.items() if speed.points}
    has_margin = not all(speed.whole_epoch for speed in measured.values())
    return JobFacts(known, measured, steps, workers, has_margin)


def needs_probe(record: JobRecord, facts: JobFacts) -> bool:
    """Whether a job must be measured before a policy can answer it."""
    return record.deadline_s is not None and record.spec.elastic and not facts.is_complete


def find_held(record: JobRecord, speeds: Mapping[str, SpeedsByType], inventory: Inventory) -> SpeedRecord:
    """What is known of a job's speed on the devices it holds (if they are of several types, on the first)."""
    held = next(iter(inventory.count_types(record.devices)), record.first_device_type or inventory.device_types[0])
    known = speeds[record.speed_key].get(held)
    return known if known is not None else SpeedRecord(name_key(record.speed_key, held), device_type=held)


def list_device_types(record: JobRecord, inventory: Inventory) -> tuple[str, ...]:
    """The types a job may run on: those it names, of those there are; below D2 the one it first ran on."""
    if record.first_device_type and record.spec.determinism != MIXING:
        return (record.first_device_type,)
    named = record.spec.device_types
    if named is None:
        return inventory.device_types
    wanted = {device_type.lower() for device_type in named}
    return tuple(device_type for device_type in inventory.device_types if device_type in wanted)


def list_shares(
    job: JobFile, device_types: Sequence[str], workers: int, inventory: Inventory
) -> dict[str, tuple[int, ...]]:
    """The numbers of devices of each type that a job may hold alone; types that have too few are left out."""
    found = {device_type: job.shares(workers, inventory.totals.get(device_type, 0)) for device_type in device_types}
    return {device_type: shares for device_type, shares in found.items() if shares}


def build_job(record: JobRecord, speeds: Mapping[str, SpeedsByType], inventory: Inventory) -> Job:
    """The job as policies see it, with what is known now."""
    return make_job(record, look_up(record, speeds, inventory), inventory)


def make_job(record: JobRecord, facts: JobFacts, inventory: Inventory) -> Job:
    """The job as policies see it: at the speeds that a promise may count on."""
    file, workers = record.spec, facts.workers or UNCOUNTED
    if inventory.is_mixed:
        typed: TypedCurves | None = type_job(record, facts, workers, inventory)
        curve = typed.curves[typed.fastest] if typed is not None else Curve((1,), (1.0,))
    else:
        typed, (device_type,) = None, inventory.device_types
        shares = {device_type: file.shares(workers, inventory.cluster.total) or (1,)}
        known = find_curves(file, shares, facts.measured, promised=True)[device_type]
        curve = inventory.slow_curve(device_type, known)
    work = float(facts.steps or GUESSED_STEPS) if file.elastic else file.duration_s or RIGID_GUESS_S
    overhead, budget_s = plan_overhead(facts.measured), find_budget_s(record, inventory, inventory.device_types[0])
    if typed is not None:
        typed = keep_to_budget(record, typed, work, overhead, inventory)
        curve = typed.curves[typed.fastest]
    elif budget_s is not None:
        curve = afford(curve, work, overhead, budget_s)
    is_late = record.endangered or bool(record.missed)
    if is_late or record.deadline_s is None:
        deadline_s, priority = inf, MISSED_PRIORITY if is_late else file.priority
    else:
        deadline_s, priority = record.deadline_s, 0
    return Job(
        JobId(record.id),
        record.seq,
        record.submitted_s,
        work,
        curve,
        deadline_s,
        requested=curve.shares[0],
        overhead=overhead,
        user=record.owner,
        priority=priority,
        typed=typed,
        weight=inventory.weights.get(record.project or record.user, 1.0),
        project=record.project,
    )


def find_budget_s(record: JobRecord, inventory: Inventory, device_type: str) -> float | None:
    """The device-seconds of a type that the budget of a job with a deadline pays for; None where nothing binds it."""
    budget_usd, price = record.spec.budget_usd, inventory.prices.find(device_type)
    if budget_usd is None or record.deadline_s is None or not price:
        return None
    return 3600.0 * budget_usd / price


def afford(curve: Curve, work: float, overhead: Overhead, budget_s: float) -> Curve:
    """A curve without the shares on which a job would cost more than its budget; the cheapest if all would."""
    costs = list_costs(curve, work, overhead)
    affordable = {share for share, cost in costs.items() if cost <= budget_s}
    return curve.only(affordable or {min(costs, key=lambda share: costs[share])})


def list_costs(curve: Curve, work: float, overhead: Overhead) -> dict[int, float]:
    """The device-seconds that all of a job takes on each of its shares, from its start on."""
    return {
        share: share * (overhead.pause_s(share, starting=True) + work / rate)
        for share, rate in zip(curve.shares, curve.rates, strict=True)
    }


def keep_to_budget(
    record: JobRecord, typed: TypedCurves, work: float, overhead: Overhead, inventory: Inventory
) -> TypedCurves:
    """Speeds by type without what a job with a deadline cannot pay for; types that it holds or is planned on stay."""
    budgets_s = {one: find_budget_s(record, inventory, one) for one in typed.curves}
    held = inventory.count_types(record.devices)
    if len(held) > 1 or all(budget_s is None for budget_s in budgets_s.values()):
        return typed
    return afford_types(typed, work, overhead, budgets_s, {*held, record.plan.device_type if record.plan else ""})


def afford_types(
    typed: TypedCurves, work: float, overhead: Overhead, budgets_s: Mapping[str, float | None], held: Container[str]
) -> TypedCurves:
    """`afford` on several types, each with the device-seconds that can be paid for there (None: it costs nothing).

    A type on which nothing can be paid for is left out, unless it is `held` or no other is left. What several types at
    once would cost is not known beforehand: a job with a budget keeps to one at a time.
    """
    kept: dict[str, Curve] = {}
    excess: dict[str, float] = {}  # how many times the budget the cheapest share of each type costs
    for device_type, curve in typed.curves.items():
        budget_s, least = budgets_s[device_type], min(list_costs(curve, work, overhead).values())
        excess[device_type] = 0.0 if budget_s is None else least / budget_s
        if excess[device_type] <= 1.0 or device_type in held:
            kept[device_type] = curve if budget_s is None else afford(curve, work, overhead, budget_s)
    if not kept:
        cheapest = min(excess, key=lambda device_type: excess[device_type])
        kept[cheapest] = afford(typed.curves[cheapest], work, overhead, budgets_s[cheapest] or inf)
    return replace(typed, curves=kept, blend=None)


def find_slowdown(job: Job, inventory: Inventory) -> float:
    """How many times longer a job's plans take it to run for those who use the machines too, on its fastest type."""
    device_type = inventory.device_types[0] if job.typed is None else job.typed.fastest
    return inventory.find_slowdown(device_type, job.curve.shares[0])


def make_probe_job(record: JobRecord, inventory: Inventory, where: Sequence[str]) -> Job:
    """A probe as a small best-effort job on one of these types: at most start-up and fifteen seconds, on one or two.

    It stands in the world under the id of the job that it measures.
    """
    curves = {device_type: Curve((1, 2), (1.0, 1.01)).capped(inventory.totals[device_type]) for device_type in where}
    return Job(
        JobId(record.id),
        record.seq,
        record.submitted_s,
        PROBE_S,
        next(iter(curves.values())),
        overhead=Overhead(start_s=PROBE_START_S),
        user=record.owner,
        priority=PROBE_PRIORITY,
        typed=TypedCurves(curves) if inventory.is_mixed else None,
        purpose=Purpose.PROBE,
    )


def fix_share(job: Job, mix: Mix) -> Job:
    """A probe that has started: it keeps its devices, all of one type, or loses them all."""
    ((device_type, share),) = mix.items()
    curve = Curve((share,), (1.0,))
    return replace(job, curve=curve, typed=None if job.typed is None else TypedCurves({device_type: curve}))


def plan_overhead(speeds: SpeedsByType) -> Overhead:
    """Seconds that a start and a change of devices cost a plan: the most on any type."""
    measured = speeds.values()
    if not measured:
        return Overhead(base_s=USUAL_PAUSE_S, start_s=USUAL_STARTUP_S)
    pause_s = max(USUAL_PAUSE_S if speed.pause_s is None else speed.pause_s for speed in measured)
    startup_s = max(speed.startup_s for speed in measured)
    return Overhead(base_s=pause_s * STARTUP_MARGIN, start_s=startup_s * STARTUP_MARGIN)


def find_curves(
    job: JobFile, shares: Mapping[str, tuple[int, ...]], measured: SpeedsByType, promised: bool
) -> dict[str, Curve]:
    """The speeds that a plan may count on, by type.

    Where nothing is promised, they are those expected (how sure each is must not decide between types), and an
    unmeasured type is guessed at.
    """
    if not job.elastic:
        return {device_type: Curve(some[-1:], (1.0,)) for device_type, some in shares.items()}
    read = plan_curve if promised else expect_curve
    curves = {
        device_type: read(measured[device_type], some)
        for device_type, some in shares.items()
        if device_type in measured
    }
    if promised and curves:
        return curves
    return {
        device_type: curves.get(device_type) or borrow_curve(some, measured.values())
        for device_type, some in shares.items()
    }


def borrow_curve(shares: tuple[int, ...], measured: Iterable[SpeedRecord]) -> Curve:
    """Speeds on a type that nobody has measured: those of the slowest type that was."""
    others = [expect_curve(speed, shares) for speed in measured]
    return min(others, key=lambda curve: curve.rates[0]) if others else guess_curve(shares)


def guess_curve(shares: tuple[int, ...]) -> Curve:
    """Speeds of a job nobody has measured: only their order matters."""
    return Curve(shares, tuple(GUESSED_RATE * share**0.8 for share in shares))


def type_job(record: JobRecord, facts: JobFacts, workers: int, inventory: Inventory) -> TypedCurves:
    """A job's speeds by type, on several at once where its level allows that and its logical workers are counted."""
    job, promised = record.spec, record.deadline_s is not None
    device_types = list_device_types(record, inventory)
    shares = list_shares(job, device_types, workers, inventory) or dict.fromkeys(
        device_types or inventory.device_types[:1], (1,)
    )
    found = find_curves(job, shares, facts.measured, promised)
    curves = {device_type: inventory.slow_curve(device_type, curve) for device_type, curve in found.items()}
    moves = job.determinism == MIXING and job.elastic
    counted = workers < UNCOUNTED
    if not moves or not counted or len(curves) == 1:
        return TypedCurves(curves, movable=moves)
    asked = job.shares(workers, sum(inventory.totals[device_type] for device_type in curves))
    return TypedCurves(curves, blend_types(curves, facts.speeds, workers, asked), movable=True)


@dataclass(frozen=True, slots=True)
class AskedBlend:
    """The speed of logical workers on several types, for the numbers of devices that a job asked for.

    `model` is what is expected; plans count on as much less as they do on the least certain of the types.
    """

    model: LogicalWorkers
    margin: float
    shares: tuple[int, ...]

    @property
    def most(self) -> int:
        """The largest number of devices it can hold."""
        return self.shares[-1]

    def rate(self, mix: Mix) -> float:
        """Steps per second on a mix; 0 on a number of devices that was not asked for."""
        return self.model.rate(mix) / self.margin if sum(mix.values()) in self.shares else 0.0


def blend_types(curves: Mapping[str, Curve], known: SpeedsByType, workers: int, asked: tuple[int, ...]) -> AskedBlend:
    """The speed on several types at once, of a job with these speeds on each alone."""
    expected = {device_type: expect_along(known.get(device_type), curve) for device_type, curve in curves.items()}
    margins = [
        fast / slow
        for device_type, curve in curves.items()
        for fast, slow in zip(expected[device_type].rates, curve.rates, strict=True)
    ]
    return AskedBlend(fit_workers(workers, expected), max(margins), asked)


def deal_workers(typed: TypedCurves | None, inventory: Inventory, names: Sequence[str]) -> tuple[int, ...]:
    """The logical workers of each of these devices, more on faster ones; empty where they are to be spread evenly."""
    mix = inventory.count_types(names)
    is_whole = sum(mix.values()) == len(names)  # a device may have left the machine while the server was away
    if len(mix) == 1 or not is_whole or typed is None or not isinstance(typed.blend, AskedBlend):
        return ()
    deal = typed.blend.model.deal(mix)
    if deal is None:
        return ()
    left = {device_type: list(counts) for device_type, counts in deal.spread().items()}
    return tuple(left[inventory.types_by_name[name]].pop(0) for name in names)


def learn_mix(known: SpeedsByType, workers: int, mix: Mix, steps: int, seconds: float) -> dict[str, SpeedRecord]:
    """The records of those types of a mix whose speed explains why its steps took as long as they did.

    What one device of the type would take for all workers is noted like a measurement of share 1.
    """
    curves = {
        device_type: expect_curve(known[device_type], (1, mix[device_type])[: mix[device_type]]) for device_type in mix
    }
    before = fit_workers(workers, curves)
    after = before.learn(mix, seconds / steps)
    wrong = [device_type for device_type in mix if after.speeds[device_type] != before.speeds[device_type]]
    return {
        device_type: learn_point(known[device_type], 1, steps, steps * workers * after.speeds[device_type].seconds)
        for device_type in wrong
    }


def expect_along(speed: SpeedRecord | None, curve: Curve) -> Curve:
    """Expected steps per second at the shares of a curve that plans count on; its own where nothing was measured."""
    return curve if speed is None or not speed.points else expect_curve(speed, curve.shares)


def is_same(old: Job, new: Job) -> bool:
    """Whether two accounts of a job differ too little to plan anew."""
    before, after = list_curves(old), list_curves(new)
    return (
        before.keys() == after.keys()
        and all(is_same_curve(curve, after[device_type]) for device_type, curve in before.items())
        and old.deadline_s == new.deadline_s
        and old.priority == new.priority
        and isclose(old.work, new.work, rel_tol=1e-9)
        and isclose(old.overhead.start_s, new.overhead.start_s, rel_tol=0.5, abs_tol=1.0)
        and isclose(old.overhead.base_s, new.overhead.base_s, rel_tol=0.5, abs_tol=0.2)
    )


def list_curves(job: Job) -> dict[str, Curve]:
    """The speeds of a job by type; under no name where there is one type."""
    if job.typed is None:
        return {"": job.curve}
    blended = "+" if job.typed.blend is not None else ""
    return {device_type + blended: curve for device_type, curve in job.typed.curves.items()}


def is_same_curve(old: Curve, new: Curve) -> bool:
    """Whether two curves differ too little to plan anew."""
    pairs = zip(old.rates, new.rates, strict=False)
    return old.shares == new.shares and all(isclose(a, b, rel_tol=SAME) for a, b in pairs)
