"""Every form behind one interface: fit a sample, then estimate the step time of any layout with a 90 % interval.

`FORMS` maps a name to its function; a new form costs one function and one line. The physical form states its own
uncertainty (`fitting`); the baselines get the scatter of their residuals, which is all they know.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from springtide.throughput.model import baselines
from springtide.throughput.model.fitting import Z90, find_scatter, find_spread, fit_physical, scatter
from springtide.throughput.model.priors import Prior
from springtide.throughput.tables.points import Array, Columns, Sample

# Seen when one node's data are extended to several: 27-153 % (specification 5.2), hence half to four times as slow.
UNSEEN_NETWORK_SPREAD = 0.75


@dataclass(frozen=True)
class Estimate:
    """Log step seconds of some layouts; how to find their standard deviations, and to say what makes one less sure.

    The deviations cost some twenty times as much as the values, so they are found when first read.
    """

    log_step: Array
    find_spread: Callable[[], Array]
    explain: Callable[[int], str] = lambda row: ""

    @cached_property
    def spread(self) -> Array:
        """The standard deviation of each log step."""
        return self.find_spread()

    @property
    def step_s(self) -> Array:
        """The step time in seconds."""
        step: Array = np.exp(self.log_step)
        return step

    @property
    def low_s(self) -> Array:
        """The optimistic end of the 90 % interval."""
        low: Array = np.exp(self.log_step - Z90 * self.spread)
        return low

    @property
    def high_s(self) -> Array:
        """The pessimistic end of the 90 % interval."""
        high: Array = np.exp(self.log_step + Z90 * self.spread)
        return high


Estimator = Callable[[Columns], Estimate]


def fit_physical_form(sample: Sample, prior: Prior) -> Estimator:
    """The physical form; across nodes it falls back on one node's speed when no network was ever seen."""
    fit = fit_physical(sample, prior.mean, prior.spread)
    blind = not (prior.multi_node or bool((sample.at.nodes > 1).any()))
    one_node = baselines.fit_one_node(sample)
    scattered = find_scatter(fit, sample)

    def estimate(at: Columns) -> Estimate:
        logs, unseen = fit.predict(at), (at.nodes > 1) & blind
        if unseen.any():
            logs = np.where(unseen, one_node(at), logs)
        return Estimate(
            logs,
            lambda: np.where(unseen, UNSEEN_NETWORK_SPREAD, find_spread(fit, scattered, sample, at)),
            lambda row: _explain(sample, at, row, bool(unseen[row])),
        )

    return estimate


def _explain(sample: Sample, at: Columns, row: int, unseen: bool) -> str:
    """What a reader must know of one estimate: only what makes it less sure."""
    if unseen:
        return (
            "only one node was measured: the step across nodes is taken from one node, with a very wide interval; "
            "measure 3 or more nodes"
        )
    remarks = []
    if at.nodes[row] > 1 and not (sample.at.nodes > 1).any():
        remarks.append("only one node was measured; the network comes from other models")
    if at.devices[row] > sample.at.devices.max():
        remarks.append(f"beyond the {sample.at.devices.max():g} devices measured")
    if not sample.at.batch.min() / 1.01 <= at.batch[row] <= sample.at.batch.max() * 1.01:
        remarks.append(f"outside the local batches measured ({sample.at.batch.min():g}-{sample.at.batch.max():g})")
    return "; ".join(remarks)


def _wrap(fit: Callable[[Sample], baselines.LogPredictor]) -> Callable[[Sample, Prior], Estimator]:
    def fit_form(sample: Sample, prior: Prior) -> Estimator:
        predict = fit(sample)
        spread = scatter(sample.log_step - predict(sample.at))

        def estimate(at: Columns) -> Estimate:
            return Estimate(predict(at), lambda: np.full(len(at), spread))

        return estimate

    return fit_form


FORMS: Mapping[str, Callable[[Sample, Prior], Estimator]] = {
    "physical": fit_physical_form,
    "pollux": _wrap(baselines.fit_pollux),
    "ernest": _wrap(baselines.fit_ernest),
    "nearest": _wrap(baselines.fit_nearest),
    "one-node": _wrap(baselines.fit_one_node),
    "perfect": _wrap(baselines.fit_perfect),
}
DEFAULT_FORM = "physical"
