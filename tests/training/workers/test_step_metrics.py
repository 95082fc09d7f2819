"""Metrics of a step: which count, and what their mean is."""

import torch

from springtide.training.workers.step_metrics import StepMetrics

CPU = torch.device("cpu")


def test_the_mean_is_over_the_workers_that_logged_what_worker_0_did() -> None:
    metrics = StepMetrics()
    metrics.add(0, {"loss": torch.tensor(1.0, requires_grad=True)})
    metrics.add(0, {"accuracy": 0.5})
    metrics.add(1, {"accuracy": 1.0, "loss": 3.0})
    metrics.add(2, {"loss": 100.0})
    assert metrics.average(metrics.form, 4, None, CPU) == {"loss": 2.0, "accuracy": 0.75}
    assert metrics.form[0] == 0


def test_without_worker_0_a_step_has_no_metrics() -> None:
    metrics = StepMetrics()
    metrics.add(1, {"loss": 3.0})
    assert metrics.average(metrics.form, 4, None, CPU) == {}
    assert metrics.rows == {}
