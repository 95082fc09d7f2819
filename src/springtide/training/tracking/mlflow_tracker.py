"""MLflow: a run with the tag `springtide.run`, on the server and in the experiment that MLflow's own variables name.

Without MLFLOW_TRACKING_URI it is in `mlflow.db` in the job's output folder.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

from springtide.training.tracking.metric_journal import LoggedMetrics
from springtide.training.tracking.trackers import TrackerContent

TAG = "springtide.run"
#: The most metrics that MLflow takes in one request.
MOST = 1000


class MlflowRun:
    """One run, by its id."""

    def __init__(self, client: MlflowClient, id_: str) -> None:
        self.client = client
        self.id = id_

    def find_content(self) -> TrackerContent:
        """The last step of each metric it has."""
        names = self.client.get_run(self.id).data.metrics
        steps = {name: max(one.step for one in self.client.get_metric_history(self.id, name)) for name in names}
        return TrackerContent(steps)

    def send(self, lines: Sequence[LoggedMetrics]) -> None:
        """Log metrics with their steps and times."""
        metrics = [
            Metric(name, value, int(line.at_s * 1000), line.step)
            for line in lines
            for name, value in line.metrics.items()
        ]
        for start in range(0, len(metrics), MOST):
            self.client.log_batch(self.id, metrics=metrics[start : start + MOST])

    def close(self, is_finished: bool) -> None:
        """Say whether the run has come to its end."""
        if is_finished:
            self.client.set_terminated(self.id)


def open_run(run: str, folder: Path) -> MlflowRun:
    """The run with our tag; one that ended before it was killed runs again."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute() / 'mlflow.db'}"
    client = MlflowClient(uri)
    experiment = find_experiment(client)
    found = client.search_runs([experiment], f"tags.`{TAG}` = '{run}'")
    if found:
        client.update_run(found[0].info.run_id, status="RUNNING")
        return MlflowRun(client, found[0].info.run_id)
    return MlflowRun(client, client.create_run(experiment, tags={TAG: run}).info.run_id)


def find_experiment(client: MlflowClient) -> str:
    """The experiment that MLflow's variables name, made if it is not there; else the default one."""
    if id_ := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return id_
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
    if not name:
        return "0"
    experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id) if experiment is not None else str(client.create_experiment(name))
