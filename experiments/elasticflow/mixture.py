"""Figure 11: deadlines met, and completion time of best-effort jobs, as more and more of the jobs have no deadline."""

from collections.abc import Sequence
from typing import Any

from experiments.elasticflow.deadlines import NEWER, REASONS, list_unfinished
from experiments.elasticflow.published import FIGURE_11, FIGURE_11_JCT
from experiments.elasticflow.scenes import draw_scene
from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.simulations import Outcome, Plan
from experiments.styles import POLICY_LINES, Sheet, set_log_ticks
from experiments.tables import Cell, Table, make_table

POLICIES = ("edf", "gandiva", "tiresias", "themis", "chronus", *NEWER[:2])
CLUSTER = "8x8:a100"
SHARES = tuple(range(10, 100, 10))
COLUMNS = ("policy", "best_effort_percent", "dsr", "dsr_published", "best_effort_jct_h", "best_effort_jct_over_gandiva")


def measure(context: FigureContext) -> Findings:
    """Every policy at every mixture."""
    shares = SHARES[::4] if context.quick else SHARES
    workload = f"jobs={100 if context.quick else 200},gap=900,seed=0"
    drawn = {share: draw_scene(context, f"{workload},best_effort={share / 100:g}", CLUSTER) for share in shares}
    plans = [Plan(scene, policy) for policy in POLICIES for scene, _ in drawn.values()]
    outcomes = context.simulate(plans)
    keys = [(policy, share) for policy in POLICIES for share in shares]
    table = tabulate(dict(zip(keys, outcomes, strict=True)))
    _, notes = draw_scene(context, workload, CLUSTER)
    notes = (*notes, "The paper's own jobs are not public: its values (thin lines) are of another draw.")
    return Findings(table, compare(table), notes, unfinished=list_unfinished(outcomes))


def tabulate(outcomes: dict[tuple[str, int], Outcome]) -> Table:
    """One row per policy and mixture."""
    rows: list[tuple[Cell, ...]] = []
    for (policy, share), outcome in outcomes.items():
        jct_s, other_s = read_jct(outcome), read_jct(outcomes["gandiva", share])
        ratio = None if jct_s is None or not other_s else jct_s / other_s
        published = FIGURE_11[policy][share // 10 - 1] if policy in FIGURE_11 else None
        rows.append((policy, share, outcome.dsr, published, None if jct_s is None else jct_s / 3600, ratio))
    return make_table(COLUMNS, rows, labels=2)


def read_jct(outcome: Outcome) -> float | None:
    """Mean completion time of best-effort jobs."""
    return None if outcome.report is None else outcome.report["avg_jct_best_effort_s"]


def compare(table: Table) -> tuple[Line, ...]:
    """Each policy in the middle of the range, and ElasticFlow's best-effort jobs."""
    middle = [row for row in table.records() if row["best_effort_percent"] == 50]
    lines = [
        Line(
            f"{row['policy']}, deadlines met at 50 % best effort",
            row["dsr_published"],
            row["dsr"],
            f"Another draw of the same generator. {REASONS.get(row['policy'], 'Not in the paper.')}",
        )
        for row in middle
    ]
    remark = "Another draw; our Gandiva is stronger than the published one."
    lines += [
        Line(
            f"{row['policy']}, best-effort completion time over Gandiva's at 50 %",
            FIGURE_11_JCT[4] if row["policy"] == "elasticflow" else None,
            row["best_effort_jct_over_gandiva"],
            remark,
        )
        for row in middle
        if row["policy"] in NEWER
    ]
    return tuple(lines)


def draw(findings: Findings) -> Any:
    """Deadlines on the left, best-effort jobs on the right."""
    rows = list(findings.table.records())
    sheet = Sheet(1, 2, 3.3)
    left, right = sheet.panels
    for policy in POLICIES:
        mine = [row for row in rows if row["policy"] == policy]
        colour, marker = POLICY_LINES[policy]
        style = {"color": colour, "marker": marker}
        draw_line(left, mine, "dsr", label=policy, **style)
        draw_line(left, mine, "dsr_published", color=colour, linewidth=0.6, linestyle="--")
        draw_line(right, mine, "best_effort_jct_over_gandiva", **style)
    left.set_ylabel("share of deadlines met")
    left.set_ylim(0, 1.02)
    right.set_ylabel("best-effort JCT / Gandiva's (log)")
    right.set_yscale("log")
    set_log_ticks(right.yaxis, (0.3, 0.5, 1, 2, 5, 10, 20, 50))
    for panel in (left, right):
        panel.set_xlabel("jobs without a deadline (%)")
    sheet.legend(left)
    return sheet.finish((*findings.notes, "Left, thin dashed: published. Policies that agree hide one another."))


def draw_line(panel: Any, rows: Sequence[dict[str, Any]], column: str, **style: Any) -> None:
    """One policy over the mixtures, without what is not known."""
    known = [row for row in rows if row[column] is not None]
    panel.plot([row["best_effort_percent"] for row in known], [row[column] for row in known], **style)
