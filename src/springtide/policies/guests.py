"""Best-effort jobs on devices of several types: who gets which mix of what promises leave over.

One device for each job in order of arrival, then the rest, to the shortest job first; a job that would be the last to
end even if it ran at full speed from now on goes before all others, or the cluster would wait for it at the end. Each
takes the mix that is best for all: its own time, and what the others lose meanwhile. Nothing is planned ahead.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from springtide.core.decisions import JobView
from springtide.core.jobs import JobId
from springtide.core.mixes import Mix, TypedCurves

EQUAL = 1.0 - 1e-9  # rates this close are the same
COMPANY = 4.0  # times the jobs that are here: others come while they run
USEFUL = 0.8  # of the time that all work would take: some comes later, and some jobs use few devices
PATIENCE = 2.0  # a change must save more than so many of its own pauses


@dataclass(slots=True)
class Guest:
    """A best-effort job as it stands now, and what it may hold."""

    view: JobView
    typed: TypedCurves
    held: Mix
    work: float
    kept: str = ""  # the type of the one device that is kept for it

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types it may run on now; a job that may not change its type keeps to the first one."""
        home = self.view.home
        return (home,) if home and not self.typed.movable else self.typed.types


@dataclass(slots=True)
class Stock:
    """Devices of each type: all there are, those not handed out yet, and those of them that no guest holds."""

    totals: Mix
    free: dict[str, int]
    idle: dict[str, int]

    def holds(self, mix: Mix) -> bool:
        """Whether a mix can be handed out."""
        return all(self.free.get(kind, 0) >= count for kind, count in mix.items())

    def move(self, mix: Mix, sign: int) -> None:
        """Take a mix back (sign 1), or hand it out (sign -1)."""
        for kind, count in mix.items():
            self.free[kind] += sign * count

    def displaces(self, mix: Mix, held: Mix) -> int:
        """Of how many types somebody else holds devices that a mix needs; each stands for one job that must pause."""
        return sum(count > self.idle.get(kind, 0) + held.get(kind, 0) for kind, count in mix.items())


def share_out(now_s: float, views: Iterable[JobView], totals: Mix, free: Mix) -> dict[JobId, Mix]:
    """The mix of each best-effort job, by priority, then in arrival order; `free` counts what they hold, too.

    O(jobs * devices) speeds, nearly all of them known from the call before.
    """
    guests = [meet(view, now_s) for view in views if view.job.typed is not None]
    stock = open_stock(guests, totals, free)
    keep_one_each(guests, stock)
    ranked = rank(guests, totals)
    mixes: dict[JobId, Mix] = {}
    for guest in ranked:
        if guest.kept:
            stock.free[guest.kept] += 1
        mix = mixes[guest.view.job.id] = choose_mix(now_s, guest, stock, COMPANY * (len(guests) - 1))
        stock.move(mix, -1)
        for kind in stock.idle:
            stock.idle[kind] += guest.held.get(kind, 0) - mix.get(kind, 0)
    stock.idle = stock.free
    for guest in ranked:  # what nobody has asked for delays nobody
        stock.move(mixes[guest.view.job.id], 1)
        mixes[guest.view.job.id] = choose_mix(now_s, guest, stock, 0.0)
        stock.move(mixes[guest.view.job.id], -1)
    return mixes


def open_stock(guests: Iterable[Guest], totals: Mix, free: Mix) -> Stock:
    """The stock before anything is handed out."""
    idle = {kind: free.get(kind, 0) for kind in totals}
    for guest in guests:
        for kind, count in guest.held.items():
            idle[kind] -= count
    return Stock(totals, {kind: free.get(kind, 0) for kind in totals}, idle)


def meet(view: JobView, now_s: float) -> Guest:
    """A job as a guest."""
    assert view.job.typed is not None
    return Guest(view, view.job.typed, view.mix or {}, view.progress.work_left_at(now_s))


def keep_one_each(guests: Iterable[Guest], stock: Stock) -> None:
    """Keep one device for each guest in order, of the slowest type that will do: of those it holds if it holds any."""
    for guest in guests:
        possible = [kind for kind in guest.kinds if stock.free.get(kind, 0) > 0 and guest.typed.rate({kind: 1}) > 0]
        known = [kind for kind in possible if kind in guest.held]
        guest.kept = min(known or possible, key=lambda kind: guest.typed.rate({kind: 1}), default="")
        if guest.kept:
            stock.free[guest.kept] -= 1


def rank(guests: list[Guest], totals: Mix) -> list[Guest]:
    """Who chooses first: jobs that hold up the end, the longest of them first; then the shortest.

    A job holds up the end if even alone it needs longer than all work here would take if it were spread evenly.
    """
    alone_s = [find_alone_s(guest, totals) for guest in guests]
    backlog_s = USEFUL * sum(guest.work / full_rate(guest, totals) for guest in guests)
    order = sorted(
        range(len(guests)),
        key=lambda at: (
            -guests[at].view.job.priority,
            alone_s[at] <= backlog_s,
            -alone_s[at] if alone_s[at] > backlog_s else alone_s[at],
            guests[at].view.job.index,
        ),
    )
    return [guests[at] for at in order]


def find_alone_s(guest: Guest, totals: Mix) -> float:
    """Seconds to the end if a job pauses once and then has the cluster to itself."""
    rate = max(find_rates(guest, totals).values(), default=0.0)
    return guest.view.job.overhead.pause_s(1) + guest.work / rate if rate else inf


def full_rate(guest: Guest, totals: Mix) -> float:
    """Steps per second if every device of its types ran it as fast as one alone does."""
    return sum(totals.get(kind, 0) * single_rate(guest.typed, kind) for kind in guest.typed.types)


def single_rate(typed: TypedCurves, kind: str) -> float:
    """Steps per second of one device of a type, of the smallest share if one alone does not do."""
    curve = typed.curves[kind]
    return curve.rates[0] / curve.shares[0]


def find_rates(guest: Guest, within: Mix) -> dict[tuple[tuple[str, int], ...], float]:
    """The mixes worth asking for among so many devices, and their rates."""
    usable = {kind: within.get(kind, 0) for kind in guest.kinds}
    return {tuple(mix.items()): guest.typed.rate(mix) for mix in guest.typed.climb(usable)}


def choose_mix(now_s: float, guest: Guest, stock: Stock, company: float) -> Mix:
    """The mix, of what is free, with the least delay for all: T (1 + company * part of the cluster).

    T is the guest's own time with the pause of a change; a second on a part of the cluster delays everyone else by
    that part of a second, and a job whose devices are taken by a pause. Keeping what it holds costs no pause, and is
    preferred by PATIENCE pauses.
    """
    overhead, starting = guest.view.job.overhead, not guest.held
    capacity = full_rate(guest, stock.totals)
    best, least = {}, inf
    if guest.held and stock.holds(guest.held):
        spared_s = PATIENCE * overhead.pause_s(sum(guest.held.values()))
        wait_s = max(0.0, guest.view.progress.paused_until_s - now_s) - spared_s
        best, least = dict(guest.held), _delay(guest, guest.held, wait_s, company / capacity)
    for items, _ in find_rates(guest, stock.free).items():
        mix = dict(items)
        pause_s = overhead.pause_s(sum(mix.values()), starting)
        delay = _delay(guest, mix, pause_s, company / capacity) + pause_s * stock.displaces(mix, guest.held)
        if delay < least * EQUAL:
            best, least = mix, delay
    return best if best == guest.held else trim(guest.typed, best)


def _delay(guest: Guest, mix: Mix, wait_s: float, weight: float) -> float:
    rate = guest.typed.rate(mix)
    if rate <= 0:
        return inf
    used = sum(count * single_rate(guest.typed, kind) for kind, count in mix.items())
    return (wait_s + guest.work / rate) * (1.0 + weight * used)


def trim(typed: TypedCurves, mix: Mapping[str, int]) -> Mix:
    """A mix without the devices that make it no faster, the slowest types first."""
    rate, left = typed.rate(mix), dict(mix)
    for kind in sorted(mix, key=lambda kind: single_rate(typed, kind)):
        while len(left) > 1 or left.get(kind, 0) > 1:
            fewer = {other: count - (other == kind) for other, count in left.items() if count > (other == kind)}
            if kind not in left or typed.rate(fewer) < rate * EQUAL:
                break
            left = fewer
    return left
