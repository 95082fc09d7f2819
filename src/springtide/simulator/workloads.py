"""Draws synthetic workloads as ElasticFlow's generator does, from one seed: the same seed gives the same jobs.

Each job takes the same number of draws whatever the options, so that changing one of them (say the share of
best-effort jobs) leaves everything else about the jobs as it was.
"""

from dataclasses import dataclass, fields, replace
from math import floor, inf, isfinite
from random import Random
from typing import Any

from springtide.core.curves import Curve
from springtide.errors import InputError, TraceError
from springtide.simulator.scenarios import Request, Scenario, count_steps
from springtide.simulator.traces import Trace
from springtide.throughput.tables.profiles import Profiles

# devices asked for, and how often (ElasticFlow's generator)
SHARES = (1, 2, 4, 8, 16)
ODDS = (0.83, 0.03, 0.03, 0.10, 0.01)
# minutes are 10^U(low, high): four short jobs to each long one
SHORT_MINUTES, LONG_MINUTES, LONG_ODDS = (1.0, 2.5), (2.5, 4.0), 0.2


@dataclass(frozen=True, slots=True)
class Workload:
    """What to draw: how many jobs, the mean seconds between them, and how tight their deadlines are.

    A deadline is submission + factor * duration with factor ~ U(min_factor, max_factor); `duration_scale` stretches
    all durations (10 minutes to 167 hours at 1).
    """

    jobs: int = 1000
    gap: float = 1500.0
    seed: int = 0
    min_factor: float = 0.5
    max_factor: float = 1.5
    best_effort: float = 0.0
    duration_scale: float = 1.0

    def __post_init__(self) -> None:
        rules = (
            (self.jobs >= 1, "jobs", "1 or more"),
            (0 <= self.gap < inf, "gap", "seconds, 0 or more"),
            (self.seed >= 0, "seed", "0 or more"),
            (0 <= self.min_factor < inf, "min_factor", "0 or more"),
            (self.min_factor <= self.max_factor < inf, "max_factor", "at least min_factor"),
            (0 <= self.best_effort <= 1, "best_effort", "a share between 0 and 1"),
            (0 < self.duration_scale < inf, "duration_scale", "positive"),
        )
        for holds, key, rule in rules:
            if not holds:
                raise TraceError(f"synthetic workload: {key}={getattr(self, key)} must be {rule}")

    def describe(self) -> str:
        """The workload in the syntax it is parsed from, without what is at its default."""
        shown = [
            f"{option.name}={getattr(self, option.name):g}"
            for option in fields(self)
            if option.name in ("jobs", "gap", "seed") or getattr(self, option.name) != option.default
        ]
        return ",".join(shown)


def parse_workload(text: str) -> Workload:
    """The workload that `jobs=1000,gap=1500,seed=0` names; what is left out stays at its default."""
    return Workload(**parse_options(text, Workload(), "synthetic workload", TraceError))


def parse_options(text: str, defaults: Any, what: str, error: type[InputError]) -> dict[str, Any]:
    """Options as in `jobs=1000,gap=1500`, each a finite number of the type that its default has."""
    types = {option.name: type(getattr(defaults, option.name)) for option in fields(defaults)}
    options: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = part.partition("=")
        if key not in types:
            raise error(f"{what} {text!r}: unknown key {key!r}; there are: {', '.join(types)}")
        try:
            options[key] = types[key](value)
        except ValueError:
            raise error(f"{what} {text!r}: {key}={value!r} is not a number of that kind") from None
        if not isfinite(options[key]):
            raise error(f"{what} {text!r}: {key}={value!r} must be finite")
    return options


def draw_trace(workload: Workload, setting: Scenario) -> Trace:
    """The jobs of a workload in order of submission."""
    random = Random(workload.seed)
    choices = _list_choices(setting.profiles)
    jobs = []
    submit_s = 0.0
    for index in range(workload.jobs):
        submit_s += random.expovariate(1.0) * workload.gap
        request = _draw_request(random, workload, choices, submit_s)
        jobs.append(setting.build_job(replace(request, id=f"job-{index}"), index))
    return Trace(f"synthetic:{workload.describe()}", tuple(jobs))


Choices = dict[int, list[tuple[str, int, Curve]]]


def _list_choices(profiles: Profiles) -> Choices:
    """For each number of devices the models and batches with a known speed there, in a fixed order."""
    known = [(model, batch, profiles.curves[model, batch]) for model, batch in sorted(profiles.curves)]
    if not known:
        raise TraceError(
            f"synthetic jobs need a model and batch with a profile on every device type of the cluster; "
            f"{profiles.origin} have none in common: give --profiles DIR, or a cluster of one type"
        )
    return {share: [entry for entry in known if share in entry[2].shares] or known for share in SHARES}


def _draw_request(random: Random, workload: Workload, choices: Choices, submit_s: float) -> Request:
    """One job, still without an id."""
    low, high = LONG_MINUTES if random.random() < LONG_ODDS else SHORT_MINUTES
    duration_s = 60.0 * 10.0 ** random.uniform(low, high) * workload.duration_scale
    share = random.choices(SHARES, ODDS)[0]
    model, batch, curve = choices[share][floor(random.random() * len(choices[share]))]
    factor = random.uniform(workload.min_factor, workload.max_factor)
    best_effort = random.random() < workload.best_effort
    request = Request("", submit_s, share, duration_s=duration_s, model=model, batch=batch)
    return replace(
        request,
        steps=max(1.0, float(floor(count_steps(request, curve)))),
        deadline_s=inf if best_effort else submit_s + factor * duration_s,
    )
