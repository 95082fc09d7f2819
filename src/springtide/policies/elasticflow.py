"""ElasticFlow (ASPLOS 2023) as its paper has it: promise what can be kept, hand out the rest where it costs least.

Minimum satisfactory share by progressive filling, admission per job in arrival order, spare devices by least extra
device time, growth up to the throughput peak of the curve. Unlike the published code: newcomers are judged one by one,
a late job does not close the door, the greedy order is the paper's (ascending), and plans contain the rescale pauses,
so an admitted job is never late. A declined job is not reconsidered.
"""

from springtide.core.decisions import Answer, Decision, JobView, Snapshot, Status
from springtide.policies.planning import filling
from springtide.policies.planning.admission import admit, decide_firmly
from springtide.policies.planning.columns import make_samples
from springtide.policies.planning.compilation import compile_kernels
from springtide.policies.planning.drafts import Caution, Draft
from springtide.policies.planning.plan_table import PlanTable, is_at_rest, keep_resting

PROMISED = Answer(Status.ADMITTED, "promised", "the finish is promised", promised=True)
BEST_EFFORT = Answer(Status.ADMITTED, "best_effort", "runs on spare devices; no finish is promised")


def elasticflow(now_s: float, snapshot: Snapshot) -> Decision:
    """Admits each newcomer that fits beside all promises, declines the others for good."""
    if is_at_rest(now_s, snapshot):
        return Decision(cache=keep_resting(snapshot))
    return decide_firmly(now_s, snapshot, propose)


def propose(table: PlanTable, snapshot: Snapshot, caution: Caution) -> Draft:
    """Answers for the newcomers, with the plans of those admitted in the plan table."""
    draft = Draft(best_effort=list_best_effort(table))
    for job_id in snapshot.changes.arrived:
        view = snapshot.jobs[job_id]
        if view.job.curve.shares[0] > table.devices:
            draft.answers[job_id] = decline_size(view, table.devices)
        elif view.job.best_effort:
            draft.answers[job_id] = BEST_EFFORT
        elif caution.admits and admit(table, view):
            draft.answers[job_id] = PROMISED
        else:
            draft.answers[job_id] = decline(view, table)
    return draft


def list_best_effort(table: PlanTable) -> list[JobView]:
    """The jobs without a deadline that the cluster can hold, by priority, then in arrival order."""
    views = [view for view in table.roster.best_effort.values() if view.job.curve.shares[0] <= table.devices]
    return sorted(views, key=lambda view: (-view.job.priority, view.job.index))


def decline(view: JobView, table: PlanTable) -> Answer:
    """A refusal for lack of time or of room; a job that had the time when it was waitlisted lacked room."""
    job = view.job
    if view.status is not Status.WAITLISTED and table.now_s + job.alone_s(table.devices) > job.deadline_s:
        needed_s, given_s = job.alone_s(table.devices), job.deadline_s - table.now_s
        sentence = f"needs {needed_s:.0f} s even alone on its best share; the deadline leaves {given_s:.0f} s"
        return Answer(Status.DECLINED, "deadline_too_tight", sentence)
    sentence = "no plan meets its deadline beside the promises already made"
    return Answer(Status.DECLINED, "no_room", sentence, crowded=True)


def decline_size(view: JobView, devices: int) -> Answer:
    """A refusal of a job that needs more devices than there are."""
    least = view.job.curve.shares[0]
    sentence = f"needs at least {least} devices; the cluster has {devices}"
    return Answer(Status.DECLINED, "exceeds_cluster", sentence)


def warm_up() -> None:
    """Compile the planner."""
    compile_kernels(filling, make_samples())
