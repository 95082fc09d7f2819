"""The cloud planner over the whole catalog: time, and equality with brute force on a reduced one.

    python -m benchmarks.planner

Every GPU type of the packaged catalog gets made-up points (its speed by its rank in price), so that all 64 counts, all
two-type mixes, on demand and spot, are searched. Brute force evaluates every mix of a few regions' machines.
"""

from time import process_time

from springtide.cloud.catalog import Catalog, read_catalog
from springtide.cloud.planner import PlanSearch, search_plans
from springtide.cloud.plans import Limits, Wanted, Work
from springtide.cloud.step_times import Speed, measure_speeds
from springtide.throughput.tables.points import Point, make_layout

BAR_S = 2.0
WORK = Work("made-up", steps=200_000, global_batch=2048, level="none")
CHEAPEST = Limits(deadline_s=12 * 3600, spot=True)
FASTEST = Limits(budget_usd=5000, spot=True)
PART = Limits(deadline_s=48 * 3600, spot=True)


def make_points(catalog: Catalog) -> list[Point]:
    """Points for every GPU type: dearer GPUs are faster, synchronisation costs a fifth of a step across nodes."""
    prices: dict[str, float] = {}
    for machine in catalog.machines:
        if machine.on_demand_usd_per_h and machine.devices >= 1:
            each = machine.on_demand_usd_per_h / machine.devices
            prices[machine.device_type] = min(each, prices.get(machine.device_type, each))
    points = []
    for name, price in sorted(prices.items()):
        sample_s = 0.01 / price
        for nodes, devices in ((1, 1), (1, 4), (2, 8), (4, 16)):
            for batch in (8, 32, 128):
                step_s = 0.02 + sample_s * batch + (0.004 * devices**0.5 if devices > 1 else 0) * nodes**0.3
                points.append(Point(make_layout(WORK.model, name, nodes, devices, batch), step_s))
    return points


def measure(
    catalog: Catalog, speeds: dict[str, Speed], limits: Limits, prune: bool = True, front: bool = False
) -> tuple[PlanSearch, float]:
    """A search and the seconds of CPU it took (one thread), so that a busy machine does not count."""
    start = process_time()
    found = search_plans(catalog, speeds, WORK, limits, Wanted(front=front, prune=prune))
    return found, process_time() - start


def main() -> None:
    """Print how long the whole catalog takes, and how pruning compares with brute force on a part of it."""
    catalog = read_catalog()
    speeds = measure_speeds(make_points(catalog), [], WORK.model)
    print(f"whole catalog: {len(catalog.machines)} machines, {len(speeds)} GPU types, counts 1-64, mixes, spot")
    for what, limits in (("cheapest in 12 h", CHEAPEST), ("fastest for $5000", FASTEST)):
        whole, whole_s = measure(catalog, speeds, limits)
        print(
            f"  {what}: {whole.considered:,} layouts, {whole.evaluated:,} evaluated, {whole_s:.2f} s (bar {BAR_S:g} s)"
        )
        print(
            f"    {whole.best[0].name}, {whole.best[0].time_s.value / 3600:.1f} h, ${whole.best[0].cost_usd.value:.2f}"
        )
    part = catalog.narrow(regions=["us-east-1"], types=["T4", "A10G", "L4", "L40S"])
    pruned, pruned_s = measure(part, speeds, PART, front=True)
    brute, brute_s = measure(part, speeds, PART, front=True, prune=False)
    equal = pruned.best == brute.best and pruned.front == brute.front
    print(f"reduced catalog, with the front: pruned {pruned.evaluated:,} layouts in {pruned_s:.2f} s, brute force")
    print(f"  {brute.evaluated:,} in {brute_s:.2f} s ({brute_s / pruned_s:.1f} times as long); all equal: {equal}")


if __name__ == "__main__":
    main()
