"""What `springtide simulate --colocation` shows: jobs on the idle devices of a serving cluster, and how they leave."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from springtide.core.devices import Cluster
    from springtide.simulator.colocation import Borrowing
    from springtide.simulator.traces import Trace


def borrow_all(text: str, traces: Sequence["Trace"], policies: Sequence[str], cluster: "Cluster") -> list["Borrowing"]:
    """Every trace under every policy, on what the serving demand that `text` names leaves idle."""
    from springtide.simulator.colocation import borrow, parse_serving

    serving = parse_serving(text)
    return [borrow(trace, policy, cluster, serving) for trace in traces for policy in policies]


def print_borrowings(outcomes: Sequence["Borrowing"]) -> None:
    """One line per run."""
    from rich.console import Console
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
    Console(width=140).print(table)
