"""Metrics of a step: which count, and what their mean is."""

import torch

from springtide.training.workers.step_metrics import StepMetrics

CPU = torch.device("cpu")


def test_the_mean_is_over_the_workers_that_logged_what_worker_0_did() -> None:
    told: list[str] = []
    metrics = StepMetrics(told.append)
    metrics.add(0, {"loss": torch.tensor(1.0, requires_grad=True)})
    metrics.add(0, {"accuracy": 0.5})
    metrics.add(1, {"accuracy": 1.0, "loss": 3.0})
    metrics.add(2, {"loss": 100.0})
    assert metrics.average(metrics.form, 4, None, CPU) == {"loss": 2.0, "accuracy": 0.75}
    assert metrics.form[0] == 0
    assert len(told) == 1 and "what logical worker 2 (loss) logged is left out of the step's means" in told[0]


def test_without_worker_0_a_step_has_no_metrics() -> None:
    told: list[str] = []
    metrics = StepMetrics(told.append)
    metrics.add(1, {"loss": 3.0})
    assert metrics.average(metrics.form, 4, None, CPU) == {}
    assert metrics.rows == {}
    assert len(told) == 1 and "logical worker 1 (loss)" in told[0]


def test_who_is_left_out_is_told_once_and_who_logs_nothing_is_not() -> None:
    told: list[str] = []
    metrics = StepMetrics(told.append)
    metrics.add(0, {"a": 1.0})  # as `if run.is_main: run.log(...)` does
    assert metrics.average(metrics.form, 4, None, CPU) == {"a": 1.0} and not told
    for _ in range(3):
        for worker, names in ((0, "a"), (1, "ba"), (2, "b"), (3, "a")):
            metrics.add(worker, dict.fromkeys(names, 1.0))
        assert metrics.average(metrics.form, 4, None, CPU) == {"a": 1.0}
    assert len(told) == 1 and "what logical workers 1 (a, b), 2 (b) logged" in told[0]
