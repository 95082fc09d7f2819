"""Gandiva (OSDI 2018): every job runs at once while there is room, and takes turns when there is not.

While the requested devices of all jobs fit, all run. Otherwise time is cut into rounds: at the end of a round the
jobs that wait take their turn in the order in which they began to wait, and those that just ran keep what is left;
inside a round free devices go to waiting jobs at once. Deadline-blind.

Done better than in the ElasticFlow artifact, which ties each server to one size of jobs and so idles devices that
another size could use: placement here packs gangs of all sizes. A round is 300 s, not 60: Gandiva's slice of a minute
rests on a suspend-and-resume of under a second, while a resume costs every policy here 4 to 21 s. Packing two jobs
onto one device is not modelled (a device has one holder), nor is grow-shrink (jobs keep what they requested).
"""

from math import inf

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import JobId
from springtide.policies.common.answers import count_free, remaining_views
from springtide.policies.common.gangs import answer_gangs, change_shares, fit_in_order, stretch_round_s, wake_if_waiting

ROUND_S = 300.0


def gandiva(now_s: float, snapshot: Snapshot) -> Decision:
    """Runs every job if they all fit; else lets them take turns, a round each."""
    answers = answer_gangs(snapshot)
    views = list(remaining_views(snapshot, answers))
    ends_s = float(snapshot.memory.get("round_ends_s", now_s))
    if now_s >= ends_s:
        ends_s = now_s + stretch_round_s(views, ROUND_S)
        chosen = fit_in_order(queue_turns(views), snapshot.cluster.total)
    else:
        chosen = fill_round(views, count_free(snapshot))
    wake_at_s = wake_if_waiting(views, chosen, ends_s)
    return Decision(
        answers=answers,
        shares=change_shares(views, chosen),
        wake_at_s=wake_at_s,
        memory={} if wake_at_s == inf else {"round_ends_s": ends_s},
    )


def queue_turns(views: list[JobView]) -> list[JobView]:
    """Jobs in the order of their turns: those that wait, longest first, then those that run, shortest first."""

    def turn(view: JobView) -> tuple[bool, float, int]:
        since_s = view.progress.since_s
        return view.share > 0, -since_s if view.share else since_s, view.job.index

    return sorted(views, key=turn)


def fill_round(views: list[JobView], free: int) -> dict[JobId, int]:
    """What runs until the round ends: what does now, and waiting jobs that fit beside it in the order of turns."""
    running = {view.job.id: view.share for view in views if view.share}
    return running | fit_in_order(queue_turns([view for view in views if not view.share]), free)
