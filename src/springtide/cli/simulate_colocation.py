"""`springtide simulate --colocation`: jobs on the idle devices of a serving cluster, and how they leave."""

from typing import TYPE_CHECKING

from springtide.cli.outputs import OutputForm, print_rich

if TYPE_CHECKING:
    from springtide.cli.simulate import PolicyComparison
    from springtide.simulator.colocation import Borrowing


def simulate_colocation(text: str, compared: "PolicyComparison", form: OutputForm) -> None:
    """Run every trace under every policy on what the serving demand that `text` names leaves idle, and print it."""
    from springtide.simulator.colocation import borrow, parse_serving

    serving = parse_serving(text)
    runs = [
        borrow(trace, policy, compared.cluster, serving) for trace in compared.traces for policy in compared.policies
    ]
    if not form.write({"schema": 1, "runs": [entry.to_json() for entry in runs]}):
        print_borrowings(runs)


def print_borrowings(outcomes: list["Borrowing"]) -> None:
    """One line per run."""
    from rich.table import Table

    table = Table("trace", "policy", box=None, header_style="bold", pad_edge=False)
    for heading in ("jobs", "finished", "idle GPU-h", "lent", "reclaims", "latest", "late", "promises", "used"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(
            outcome.trace,
            outcome.policy,
            str(outcome.jobs),
            str(outcome.finished),
            f"{outcome.idle_gpu_hours:.0f}",
            f"{outcome.lent_share:.1%}",
            str(outcome.reclaims),
            f"{outcome.latest_reclaim_s:.0f} of {outcome.grace_s:g} s",
            str(outcome.late_reclaims),
            str(outcome.promises_on_borrowed),
            f"{outcome.utilization_without:.1%} to {outcome.utilization_with:.1%}",
        )
    print_rich(table, 140)
