"""The runs behind a comparison of policies, in the process of studies: a server imports no simulator."""

import tempfile
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

from springtide.core.devices import Cluster, parse_cluster
from springtide.core.shared_types import Document
from springtide.dashboard.studies.simulation_study import SimulationBody
from springtide.errors import InputError
from springtide.simulator.batches import SimulationTask, TaskResult, mute_solvers, run_tasks
from springtide.simulator.run_plots import average_steps
from springtide.simulator.scenarios import load_scenario
from springtide.simulator.traces import Trace, read_trace
from springtide.simulator.workloads import draw_trace, parse_workload
from springtide.throughput.overheads import parse_overhead

MOST_JOBS = 5000
CELLS = 240  # in which the devices held are averaged for the picture


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
        try:
            trace = read_trace(path, scenario, body.skip_bad_rows, False)
        except InputError as error:
            raise type(error)(name_pasted(str(error), path)) from None
        return replace(trace, skipped=tuple(name_pasted(row, path) for row in trace.skipped))


def name_pasted(sentence: str, path: Path) -> str:
    """A sentence about the file that a trace was written to, as one about the trace that was pasted."""
    return sentence.replace(f"trace {path}", "the trace").replace(str(path), "the trace")


def describe_recording(result: TaskResult) -> Document:
    """What a run held over time: hours since the first start, and mean devices in equal cells of time."""
    assert result.recording is not None, "every run is recorded"
    hours, held = average_steps(result.recording.held, CELLS)
    return {"hours": [round(hour, 4) for hour in hours], "held": [round(mean, 2) for mean in held]}
