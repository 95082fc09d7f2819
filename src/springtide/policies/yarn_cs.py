"""One job at a time, in order of arrival: YARN-CS as the published EasyScale simulator has it.

There the first active job gets its devices and the loop ends, so that a whole cluster serves a single job; the figures
of the EasyScale paper (SC 2023) are against this. It looks once a minute, and a job's first step comes 20 s after its
turn; both are part of this reading, whatever a start costs otherwise. YARN's capacity scheduler itself is `fifo`.
"""

from math import ceil, inf

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.policies.common.answers import remaining_views
from springtide.policies.common.gangs import answer_gangs, choose_gangs, give_gangs, list_gangs, stock_free

ROUND_S = 60.0
START_S = 20.0


def yarn_cs(now_s: float, snapshot: Snapshot) -> Decision:
    """Starts the first waiting job if none runs, when its turn has come."""
    answers = answer_gangs(snapshot)
    first = next(remaining_views(snapshot, answers), None)
    if first is None or first.share:
        return Decision(answers=answers)
    turn_s = snapshot.memory.get("turn_s", -inf)
    if turn_s < now_s or snapshot.memory.get("job") != first.job.id:
        turn_s = ROUND_S * ceil(now_s / ROUND_S) + missing_s(first)
    if turn_s > now_s:
        return Decision(answers=answers, wake_at_s=turn_s, memory={"turn_s": turn_s, "job": first.job.id})
    return give_gangs(answers, [first], choose_gangs([first], stock_free(snapshot)))


def missing_s(view: JobView) -> float:
    """Seconds to wait with a start so that the first step comes 20 s after the round began."""
    share = list_gangs(view)[0].share
    return max(0.0, START_S - view.job.overhead.pause_s(share, starting=True))
