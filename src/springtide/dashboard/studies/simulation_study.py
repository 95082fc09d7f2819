"""A comparison of policies on a workload, as the pages and the API ask for it."""

import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from springtide.core.devices import Cluster, parse_cluster
from springtide.errors import InputError
from springtide.policies import POLICIES
from springtide.simulator.batches import SimulationTask, TaskResult, mute_solvers, run_tasks
from springtide.simulator.run_plots import average_steps
from springtide.simulator.scenarios import load_scenario
from springtide.simulator.traces import Trace, read_trace
from springtide.simulator.workloads import draw_trace, parse_workload
from springtide.throughput.overheads import parse_overhead

Document = dict[str, Any]
MOST_JOBS = 5000
MOST_POLICIES = 8
MOST_TRACE_BYTES = 2 << 20
CELLS = 240  # in which the devices held are averaged for the picture


class SimulationBody(BaseModel):
    """Jobs, drawn or from a trace, and who is to schedule them on what."""

    model_config = ConfigDict(extra="forbid")
    synthetic: Annotated[str, Field(max_length=200, description="A workload to draw: jobs=200,gap=600,seed=0.")] = ""
    trace: Annotated[str, Field(max_length=MOST_TRACE_BYTES, description="Or a trace, as the text of a CSV file.")] = ""
    cluster: Annotated[str, Field(max_length=200, description="NODESxGPUS:TYPE, several joined by commas.")] = (
        "4x8:a100"
    )
    policies: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Field(min_length=1, max_length=MOST_POLICIES, description="Names of policies, as `springtide simulate` knows."),
    ] = ["elasticflow", "springtide"]
    skip_bad_rows: Annotated[bool, Field(description="Leave out rows that cannot be read.")] = False

    @model_validator(mode="after")
    def check_source(self) -> "SimulationBody":
        """One source, and policies of the package: a name with a module in it would run code of the caller's choice."""
        if bool(self.synthetic) == bool(self.trace):
            raise ValueError("give either synthetic or trace")
        unknown = [name for name in self.policies if name not in POLICIES]
        if unknown:
            raise ValueError(f"policies {', '.join(unknown)} are unknown; there are {', '.join(POLICIES)}")
        return self


def run_simulation(body: SimulationBody) -> Document:
    """The reports of all policies, with what they held over time."""
    cluster = parse_cluster(body.cluster)
    trace = load_jobs(body, cluster)
    results = replay_all(trace, body.policies, cluster)
    return {
        "schema": 1,
        "trace": trace.name,
        "jobs": len(trace.jobs),
        "devices": cluster.total,
        "cluster": cluster.describe(),
        "skipped_rows": list(trace.skipped),
        "runs": [result.report.to_json() | describe_recording(result) for result in results],
    }


def draw_simulation(body: SimulationBody) -> Document:
    """The same as a picture."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("to draw, the server needs matplotlib: pip install 'springtide[figures]'") from None
    from springtide.simulator.run_plots import draw_outcomes

    cluster = parse_cluster(body.cluster)
    results = replay_all(load_jobs(body, cluster), body.policies, cluster)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.png"
        draw_outcomes(path, results)
        return {"png": b64encode(path.read_bytes()).decode()}


def replay_all(trace: Trace, policies: list[str], cluster: Cluster) -> list[TaskResult]:
    """The trace under each policy, recorded."""
    if len(trace.jobs) > MOST_JOBS:
        raise InputError(
            f"{len(trace.jobs)} jobs are more than the {MOST_JOBS} that a server simulates for a page; "
            "run it yourself with: springtide simulate"
        )
    tasks = [SimulationTask(trace, policy, cluster, record=True) for policy in dict.fromkeys(policies)]
    with mute_solvers():
        return list(run_tasks(tasks))


def load_jobs(body: SimulationBody, cluster: Cluster) -> Trace:
    """The jobs that are asked for."""
    scenario = load_scenario(cluster, None, parse_overhead("elasticflow", cluster.total), 1.0)
    if body.synthetic:
        workload = parse_workload(body.synthetic)
        if workload.jobs > MOST_JOBS:
            raise InputError(f"jobs={workload.jobs} is more than the {MOST_JOBS} that a server simulates for a page")
        return draw_trace(workload, scenario)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        path.write_text(body.trace, encoding="utf-8")
        return read_trace(path, scenario, body.skip_bad_rows, False)


def describe_recording(result: TaskResult) -> Document:
    """What a run held over time: hours since the first start, and mean devices in equal cells of time."""
    assert result.recording is not None, "every run is recorded"
    hours, held = average_steps(result.recording.held, CELLS)
    return {"hours": [round(hour, 4) for hour in hours], "held": [round(mean, 2) for mean in held]}
