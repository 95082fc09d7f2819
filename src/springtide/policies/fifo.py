"""First in, first out: gangs start in order of arrival and run to their end.

The head of the queue blocks all behind it, and nothing is preempted: the plain queue of a batch cluster (YARN-CS in
the ElasticFlow and Tiresias papers). `fifo_backfill` fills the gaps it leaves.
"""

from springtide.core.decisions import Decision, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.answers import count_free, remaining_views
from springtide.policies.gangs import answer_gangs, gang_share


def fifo(_now_s: float, snapshot: Snapshot) -> Decision:
    """Starts waiting jobs in order of arrival until one does not fit."""
    answers = answer_gangs(snapshot)
    free = count_free(snapshot)
    shares: dict[JobId, int] = {}
    for view in remaining_views(snapshot, answers):
        if view.share:
            continue
        share = gang_share(view.job)
        if share > free:
            break
        shares[view.job.id] = share
        free -= share
    return Decision(answers=answers, shares=shares)
