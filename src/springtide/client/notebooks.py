"""How replies show themselves in a notebook: a small table in plain HTML, everything escaped."""

from datetime import datetime
from typing import TYPE_CHECKING

from springtide.core.durations import show_span
from springtide.html_tables import show_table

if TYPE_CHECKING:
    from springtide.client.replies import JobInfo, PlanInfo, SegmentInfo

WIDTH, HEIGHT = 520, 46


def show_job(job: "JobInfo") -> str:
    """A job: its answer, where it stands, and its plan."""
    rows = [("answer", job.sentence), ("state", str(job.state)), ("devices", ", ".join(job.devices) or "none")]
    if job.total_steps:
        rows.append(("step", f"{job.step} of {job.total_steps}"))
    rows += [("deadline", tell_instant(job.deadline)), ("expected end", tell_instant(job.predicted_finish))]
    return show_table(job.name, rows) + draw_plan(job.plan, job.predicted_finish_in_s, job.deadline_in_s)


def show_plan(plan: "PlanInfo") -> str:
    """What a submission would be told, with the plan drawn."""
    rows = [("answer", plan.answer), ("because", plan.sentence), ("deadline", tell_instant(plan.deadline))]
    rows.append(("would end", tell_instant(plan.predicted_finish)))
    rows += [("offer", f"{offer.kind}: {show_span(offer.deadline_in_s)} from now") for offer in plan.offers]
    span_s = None if plan.deadline is None else find_deadline_s(plan)
    return show_table("plan", rows) + draw_plan(plan.plan, plan.predicted_finish_in_s, span_s)


def find_deadline_s(plan: "PlanInfo") -> float | None:
    """Seconds until the deadline, where the document allows to tell."""
    if plan.predicted_finish is None or plan.deadline is None or plan.predicted_finish_in_s is None:
        return None
    return plan.predicted_finish_in_s + (plan.deadline - plan.predicted_finish).total_seconds()


def tell_instant(at: datetime | None) -> str:
    """An instant, or that there is none."""
    return "none" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def draw_plan(plan: "tuple[SegmentInfo, ...]", end_s: float | None, deadline_s: float | None) -> str:
    """Devices over time from now on, and a line at the deadline."""
    if not plan or end_s is None or end_s <= 0:
        return ""
    span_s = 1.05 * max(end_s, deadline_s or 0.0)
    most = max(segment.share for segment in plan) or 1
    ends = [*(segment.start_in_s for segment in plan[1:]), end_s]
    bars = ""
    for segment, stop_s in zip(plan, ends, strict=True):
        start_s = max(0.0, segment.start_in_s)
        if stop_s > start_s:
            bars += draw_bar(
                WIDTH * start_s / span_s, WIDTH * (stop_s - start_s) / span_s, HEIGHT * segment.share / most
            )
    if deadline_s is not None and deadline_s > 0:
        bars += f'<path d="M{WIDTH * deadline_s / span_s:.1f} {HEIGHT}V0" stroke="#1c2429" stroke-width="1.5"/>'
    label = "devices over time, and the deadline"
    return f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">{bars}</svg>'


def draw_bar(x: float, width: float, height: float) -> str:
    """A bar on the ground."""
    return f'<rect x="{x:.1f}" y="{HEIGHT - height:.1f}" width="{width:.1f}" height="{height:.1f}" fill="#3f99a3"/>'
