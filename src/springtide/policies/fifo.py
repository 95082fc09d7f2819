"""First in, first out: gangs start in order of arrival and run to their end.

The head of the queue blocks all behind it, and nothing is preempted: the plain queue of a batch cluster (YARN-CS in
the ElasticFlow and Tiresias papers). `fifo_backfill` fills the gaps it leaves.
"""

from springtide.core.decisions import Decision, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.common.answers import remaining_views
from springtide.policies.common.gangs import Gang, answer_gangs, give_gangs, stock_free


def fifo(_now_s: float, snapshot: Snapshot) -> Decision:
    """Starts waiting jobs in order of arrival until one does not fit."""
    answers = answer_gangs(snapshot)
    stock = stock_free(snapshot)
    waiting = [view for view in remaining_views(snapshot, answers) if not view.share]
    chosen: dict[JobId, Gang] = {}
    for view in waiting:
        gang = stock.find(view)
        if gang is None:
            break
        chosen[view.job.id] = stock.take(gang)
    return give_gangs(answers, waiting, chosen)
