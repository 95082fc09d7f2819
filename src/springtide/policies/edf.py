"""Earliest deadline first, at full speed: the most urgent job takes the devices it runs fastest on, others the rest.

Elastic and preemptive, without admission: everyone is let in, and the share of a job is whatever the more urgent ones
leave. Done better than in the ElasticFlow artifact: no job holds more devices than its throughput peak (there up to
64, even where that is slower), and a job that can no longer meet its deadline goes behind all that can (there it
keeps the cluster from them).
"""

from collections.abc import Iterable

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.common.answers import answer_arrivals, remaining_views, smallest_share
from springtide.policies.common.urgency import order_by_deadline, soonest_share


def edf(now_s: float, snapshot: Snapshot) -> Decision:
    """Gives each job in order of its deadline the share that ends it soonest among those still free."""
    answers = answer_arrivals(snapshot, smallest_share)
    devices = snapshot.cluster.total
    order = order_by_deadline(remaining_views(snapshot, answers), now_s, devices)
    return Decision(answers=answers, shares=share_out(now_s, order, devices))


def share_out(now_s: float, order: Iterable[JobView], free: int) -> dict[JobId, int]:
    """The shares that change when each job in turn takes the share that ends it soonest."""
    shares: dict[JobId, int] = {}
    for view in order:
        share = soonest_share(view, now_s, free)[0] if free else 0
        if share != view.share:
            shares[view.job.id] = share
        free -= share
    return shares
