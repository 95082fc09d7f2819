"""Shortest remaining time first: at every event the gangs that need the least time to finish run, others give way.

Remaining time counts the pause a stopped job pays to start, so a running job is not preempted for a gain smaller than
that. Between events running jobs only come nearer to their end and waiting ones stay where they are, so the order
among them needs no wake-up. Deadline-blind; a large job can be passed over for as long as shorter ones keep coming.
"""

from springtide.core.decisions import Decision, Snapshot
from springtide.policies.common.answers import remaining_views
from springtide.policies.common.gangs import answer_gangs, choose_gangs, give_gangs, needed_s, stock_all


def srtf(now_s: float, snapshot: Snapshot) -> Decision:
    """Runs the jobs with the shortest remaining time, each on its requested devices."""
    answers = answer_gangs(snapshot)
    views = list(remaining_views(snapshot, answers))
    order = sorted(views, key=lambda view: (needed_s(view, now_s), view.job.index))
    return give_gangs(answers, views, choose_gangs(order, stock_all(snapshot)), preempt=True)
