"""A job on rented machines, judged: how long and how dear any machines are by all measurements of its model.

Plans are made from nine probes per device type, as a user would have them; what they come to is judged by a fit on
everything that was measured, the nearest thing to the truth that is at hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.caches import digest_files
from experiments.form_evaluation import nine_probes
from springtide.cloud.catalog import DATA, Catalog, Machine, normalise, read_catalog
from springtide.cloud.estimates import read_peaks
from springtide.cloud.planner import search_plans
from springtide.cloud.plans import HOUR_S, Limits, RentalPart, RentalPlan, Work
from springtide.cloud.splitting import Pair, cut_alone, cut_mix
from springtide.cloud.step_times import Speed, Speeds, find_speed, measure_speeds
from springtide.throughput.tables.points import Point, group_points

CLOUD, REGION = "aws", "us-east-1"
MOST_NODES = 16
MOST_DEVICES = 64
ANY_BUDGET_USD = 1e9


def digest_prices() -> str:
    """A digest of the packaged machines and prices."""
    return digest_files(DATA.glob("*.csv"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What some machines come to."""

    hours: float
    usd: float
    samples_per_s: float


@dataclass(frozen=True)
class Market:
    """A job, what can be rented for it, and its speeds: as guessed from probes, and as judged."""

    work: Work
    catalog: Catalog
    guessed: Speeds
    judged: Speeds

    def judge(self, parts: Sequence[RentalPart], usd_per_h: float) -> Verdict:
        """What these machines really come to."""
        speeds = [require_speed(self.judged, part.machine) for part in parts]
        counts = [np.array([float(part.nodes)]) for part in parts]
        if len(parts) == 1:
            cut = cut_alone(speeds[0], counts[0], int(parts[0].machine.devices), self.work)
        else:
            each = (int(parts[0].machine.devices), int(parts[1].machine.devices))
            cut = cut_mix(Pair((speeds[0], speeds[1]), each), counts[0], counts[1], self.work, spread=False)
        step_s = float(np.exp(cut.log_step[0]))
        hours = (Limits().startup_s + self.work.steps * step_s) / HOUR_S
        return Verdict(hours, hours * usd_per_h, self.work.global_batch / step_s)

    def find_fastest(self) -> RentalPlan:
        """The fastest plan that money can buy, as guessed."""
        limits = Limits(budget_usd=ANY_BUDGET_USD, most_nodes=MOST_NODES, mixes=False)
        return search_plans(self.catalog, self.guessed, self.work, limits).best[0]

    def offered(self) -> list[Machine]:
        """The machines that can be rented on demand and whose speed is known."""
        return [
            machine
            for machine in self.catalog.machines
            if machine.on_demand_usd_per_h and machine.devices >= 1 and find_speed(self.judged, machine)
        ]


def require_speed(speeds: Speeds, machine: Machine) -> Speed:
    """The speed of a machine that was offered."""
    speed = find_speed(speeds, machine)
    assert speed is not None, f"{machine.instance_type} was planned without a speed"
    return speed


def open_market(points: Sequence[Point], model: str, global_batch: int, steps: int) -> Market:
    """The market for a model, from points of all models on every type."""
    mine = [point for point in points if point.layout.model == model]
    others = [point for point in points if point.layout.model != model]
    probes = [probe for members in group_points(mine).values() for probe in nine_probes(members)[0]]
    work = Work(model, steps, global_batch, level="none")
    catalog = read_catalog().narrow(clouds=[CLOUD], regions=[REGION])
    return Market(work, catalog, measure_speeds(probes, others, model), measure_speeds(mine, others, model))


def choose_usual(market: Market) -> dict[str, RentalPart]:
    """The choices that people make without a prediction: cheapest machine, biggest GPU, most GPUs."""
    machines = market.offered()
    batch = market.work.global_batch

    def price(machine: Machine) -> float:
        return machine.on_demand_usd_per_h or 0.0

    cheapest = min(machines, key=lambda machine: (price(machine), machine.instance_type))
    peaks = read_peaks()
    biggest = max(machines, key=lambda machine: (peaks.get(normalise(machine.device_type), 0.0), -price(machine)))
    most = max(machines, key=lambda machine: (count_most(machine), -price(machine) / machine.devices))
    return {
        "cheapest per hour": make_part(cheapest, 1, batch),
        "biggest GPU": make_part(biggest, 1, batch),
        "most GPUs": make_part(most, count_most(most) // int(most.devices), batch),
    }


def count_most(machine: Machine) -> int:
    """The most devices that nodes of one machine bring."""
    return min(MOST_NODES, int(MOST_DEVICES // machine.devices)) * int(machine.devices)


def make_part(machine: Machine, nodes: int, global_batch: int) -> RentalPart:
    """So many nodes of a machine."""
    return RentalPart(machine, nodes, global_batch / (nodes * machine.devices))
