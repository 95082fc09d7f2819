"""EasyScale's model of a job on a mix of devices: a fixed number of logical workers, dealt out to the devices held.

In one global step every device runs its logical workers one after the other, and the slowest device sets the pace.
Symbols as in EasyScale (SC 2023): maxP logical workers, N_i devices of type i, C_i mini-batches per second of one
worker there, A_i workers on each of them. Which devices to ask for is the policies' business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor, inf

from springtide.core.curves import Curve
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.errors import ProfileError

ROUNDING = 1e-12  # k * seconds / seconds must count as k whatever the rounding
UNLIMITED = 1 << 30


@dataclass(frozen=True)
class DeviceSpeed:
    """One device type for one job: seconds of a mini-batch of one logical worker, alone on the device.

    `most_workers` is what its memory holds (logical workers that take turns share one copy of the model, so it is
    usually unlimited). `executors` processes take turns side by side, each at `interference` times the speed alone.
    """

    seconds: float
    most_workers: int = UNLIMITED
    executors: int = 1
    interference: float = 1.0

    def __post_init__(self) -> None:
        rules = (
            (0 < self.seconds < inf, f"{self.seconds} seconds per mini-batch must be positive"),
            (self.most_workers >= 1, f"{self.most_workers} logical workers per device must be 1 or more"),
            (self.executors >= 1, f"{self.executors} executors per device must be 1 or more"),
            (0 < self.interference <= 1, f"interference {self.interference} must be above 0 and at most 1"),
        )
        for holds, message in rules:
            if not holds:
                raise ProfileError(message)

    @cached_property
    def turn_s(self) -> float:
        """Seconds in which every executor of a device runs one worker."""
        return self.seconds / self.interference if self.executors > 1 else self.seconds

    @cached_property
    def capacity(self) -> float:
        """C_i of a device: mini-batches per second, m C I with m executors."""
        return self.executors / self.turn_s

    def workers_within(self, step_s: float) -> int:
        """A_i: the most workers that a device can run in `step_s` seconds, up to what its memory holds."""
        return min(self.executors * floor(step_s / self.turn_s * (1.0 + ROUNDING)), self.most_workers)

    def busy_s(self, workers: int) -> float:
        """Seconds in which a device runs so many workers."""
        return -(-workers // self.executors) * self.turn_s


@dataclass(frozen=True, slots=True)
class Sync:
    """What a step spends on the exchange of gradients: 2 (N-1)/N `gradient_s` + 2 (N-1) `hop_s` on N devices (a ring).

    `gradient_s` is the time to send all gradients once over the slowest link, `hop_s` the latency of one message.
    """

    gradient_s: float = 0.0
    hop_s: float = 0.0

    def step_s(self, devices: int) -> float:
        """Seconds per step on so many devices; none on one."""
        return 2.0 * (devices - 1) / devices * self.gradient_s + 2.0 * (devices - 1) * self.hop_s


@dataclass(frozen=True, slots=True)
class Deal:
    """Logical workers dealt out to a mix of devices: `workers` is A_i, the most that one device of a type runs.

    Types that run none have A_i = 0 and no part in the step time. Device by device: `spread`.
    """

    count: int
    mix: Mix
    workers: Mapping[str, int]
    speeds: Mapping[str, DeviceSpeed]

    @property
    def capacity(self) -> int:
        """Workers for which there is room: sum_i N_i A_i, at least maxP."""
        return sum(devices * self.workers[device_type] for device_type, devices in self.mix.items())

    def spread(self) -> dict[str, tuple[int, ...]]:
        """Workers of every device, maxP in all: A_i each, fewer on the last ones of the type with the most to spare."""
        left = self.capacity - self.count
        spread = {}
        for device_type in sorted(self.mix, key=lambda device_type: -self.workers[device_type]):
            devices = [self.workers[device_type]] * self.mix[device_type]
            for at in range(len(devices) - 1, -1, -1):
                taken = min(left, devices[at])
                devices[at] -= taken
                left -= taken
            spread[device_type] = tuple(devices)
        return spread


@dataclass(frozen=True)
class LogicalWorkers:
    """A job of `count` logical workers (maxP) with its speed on each device type; a `Blend` of any of them."""

    count: int
    speeds: Mapping[str, DeviceSpeed]
    sync: Sync = Sync()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ProfileError(f"maxP {self.count} must be 1 or more logical workers")

    @property
    def most(self) -> int:
        """One device per logical worker at most."""
        return self.count

    def deal(self, mix: Mix) -> Deal | None:
        """The mapping of workers to devices with the shortest step; None where memory does not hold them all."""
        used = {device_type: devices for device_type, devices in mix.items() if devices}
        step_s = self._find_shortest_s(used)
        if step_s == inf:
            return None
        workers = {device_type: self.speeds[device_type].workers_within(step_s) for device_type in used}
        return Deal(self.count, used, self._trim(used, workers), self.speeds)

    def _find_shortest_s(self, mix: Mix) -> float:
        """Seconds of the shortest step in which the devices run all workers; infinite if memory does not hold them.

        In t seconds a device of type i runs floor(t C_i) workers, so it is the least t with sum_i N_i floor(t C_i) >=
        maxP. No t below maxP / sum_i N_i C_i will do; from there it goes on to the next end of a turn until there is
        room, at most one turn of the slowest type further: O(types^2).
        """
        if not mix:
            return inf
        speeds = [(*self._turns[device_type], devices) for device_type, devices in mix.items()]
        step_s = self.count / sum([devices * (executors / turn_s) for turn_s, executors, _, devices in speeds])
        while True:
            room, reached_s, next_s = 0, 0.0, inf
            for turn_s, executors, most, devices in speeds:  # `workers_within` spelt out: this is asked often
                turns = floor(step_s / turn_s * (1.0 + ROUNDING))
                held = min(executors * turns, most)
                room += devices * held
                reached_s = max(reached_s, turns * turn_s)
                if held < most:
                    next_s = min(next_s, (turns + 1) * turn_s)
            if room >= self.count:
                return reached_s
            if next_s == inf:
                return inf
            step_s = next_s

    @cached_property
    def _turns(self) -> dict[str, tuple[float, int, int]]:
        return {
            device_type: (speed.turn_s, speed.executors, speed.most_workers)
            for device_type, speed in self.speeds.items()
        }

    def _trim(self, mix: Mix, workers: dict[str, int]) -> dict[str, int]:
        """The same without room that nobody needs, taken from the slowest types first."""
        spare = sum(mix[device_type] * workers[device_type] for device_type in mix) - self.count
        for device_type in sorted(mix, key=lambda device_type: self.speeds[device_type].capacity):
            surplus = min(spare // mix[device_type], workers[device_type])
            workers[device_type] -= surplus
            spare -= surplus * mix[device_type]
        return workers

    def step_s(self, mix: Mix) -> float:
        """Seconds of one global step, communication included; infinite where the job does not fit."""
        used = {device_type: devices for device_type, devices in mix.items() if devices}
        return self._find_shortest_s(used) + self.sync.step_s(sum(used.values())) if used else inf

    def rate(self, mix: Mix) -> float:
        """Global steps per second; 0 where the job does not fit or has fewer workers than devices."""
        if not 0 < sum(mix.values()) <= self.count:
            return 0.0
        return 1.0 / self.step_s(mix)

    def curve(self, device_type: str, most: int) -> Curve | None:
        """The speeds on up to `most` devices of one type alone; None if the job fits on no such number."""
        rates = [(share, self.rate({device_type: share})) for share in range(1, min(most, self.count) + 1)]
        points = [(share, rate) for share, rate in rates if rate > 0]
        return Curve(*map(tuple, zip(*points, strict=True))) if points else None

    def type_curves(self, totals: Mix, level: "Level") -> TypedCurves:
        """The job's speeds by type on a cluster with so many devices of each."""
        if level.guaranteed > self.count:
            raise ProfileError(
                f"minP {level.guaranteed} exceeds maxP {self.count}; a job cannot be guaranteed more devices than it "
                "has logical workers"
            )
        found = {
            device_type: self.curve(device_type, devices)
            for device_type, devices in totals.items()
            if device_type in self.speeds
        }
        curves = {device_type: curve for device_type, curve in found.items() if curve is not None}
        if not curves:
            raise ProfileError(f"{self.count} logical workers fit on no device type of the cluster: {dict(totals)}")
        preferred = level.preferred if level.preferred in curves else ""
        blend = self if level.mixes and len(curves) > 1 else None
        return TypedCurves(curves, blend, level.mixes, preferred, level.guaranteed)

    def learn(self, mix: Mix, step_s: float, weight: float = 0.5) -> "LogicalWorkers":
        """The model corrected by a step that was seen to take `step_s` on a mix.

        A type that was believed to be busy for longer than the step took is faster than that; if all were believed to
        be done earlier, the slowest of them is slower. Its seconds move to the value that explains the step by
        `weight` of the way; what the other types need cannot be seen from this step and stays.
        """
        deal = self.deal(mix)
        busy_s = step_s - self.sync.step_s(sum(mix.values()))
        if deal is None or not 0 < busy_s < inf:
            return self
        believed = {
            device_type: self.speeds[device_type].busy_s(workers)
            for device_type, workers in deal.workers.items()
            if workers
        }
        wrong = [device_type for device_type, s in believed.items() if s > busy_s] or [
            max(believed, key=lambda device_type: believed[device_type])
        ]
        factors = {device_type: 1.0 + weight * (busy_s / believed[device_type] - 1.0) for device_type in wrong}
        return replace(
            self,
            speeds={
                device_type: replace(speed, seconds=speed.seconds * factors.get(device_type, 1.0))
                for device_type, speed in self.speeds.items()
            },
        )


def fit_workers(count: int, curves: Mapping[str, Curve]) -> LogicalWorkers:
    """The model behind the speeds measured on each type alone: what a mini-batch takes there, and the exchange.

    Seconds of a mini-batch come from the smallest share. What larger shares take beyond their mini-batches is the
    exchange of gradients; the costliest of all is taken, so that a mix is never thought faster than its parts allow.
    """
    seconds = {
        device_type: 1.0 / (curve.rates[0] * ceil(count / curve.shares[0])) for device_type, curve in curves.items()
    }
    gradients_s = [
        (1.0 / rate - ceil(count / share) * seconds[device_type]) * share / (2.0 * (share - 1))
        for device_type, curve in curves.items()
        for share, rate in zip(curve.shares[1:], curve.rates[1:], strict=True)
    ]
    return LogicalWorkers(
        count, {device_type: DeviceSpeed(s) for device_type, s in seconds.items()}, Sync(max(0.0, 0.0, *gradients_s))
    )


@dataclass(frozen=True, slots=True)
class Level:
    """What a job may do with device types: `mixes` (D2) several at once and changes of type; D1 one of them.

    `guaranteed` is minP, `preferred` the type asked for by name.
    """

    mixes: bool = False
    preferred: str = ""
    guaranteed: int = 0


def saved_s(work_left: float, rate: float, new_rate: float, pause_s: float) -> float:
    """Seconds by which a job ends earlier if it pauses once and goes on at another rate; negative if it ends later."""
    if new_rate <= 0:
        return -inf
    return (work_left / rate if rate > 0 else inf) - pause_s - work_left / new_rate
