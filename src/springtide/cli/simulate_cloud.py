"""The options of `springtide simulate --cloud`; what runs is `experiments/rental_simulation.py` of the repository."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from springtide.cli.checkout import import_experiment
from springtide.cli.option_groups import list_given, option, refuse_given
from springtide.cli.outputs import OutputForm

PANEL = "Rented machines"
OF_MARKET = ("--length", "--machines", "--scaling", "--on-demand-price", "--spot-price")
OF_RENTAL = (
    "--points",
    "--prior",
    "--model",
    "--steps",
    "--global-batch",
    "--logical-workers",
    "--budget",
    "--catalog",
    "--region",
    "--type",
    "--seeds",
)


@dataclass(frozen=True, slots=True)
class RentalOptions:
    """The job on rented machines that `--cloud` asks for instead of a comparison."""

    cloud: bool = option(
        False,
        "Simulate one job on rented machines instead. TRACE: aws, gcp, azure, a spot trace (CSV), or nothing.",
        "--cloud",
        rich_help_panel=PANEL,
    )
    points: Path | None = option(None, "Measured points of the job (CSV).", metavar="FILE", rich_help_panel=PANEL)
    prior: Path | None = option(None, "Points of other models.", metavar="FILE", rich_help_panel=PANEL)
    model: str | None = option(None, "Which model of the points. Default: the first.", rich_help_panel=PANEL)
    steps: int | None = option(None, "Steps to train.", min=1, rich_help_panel=PANEL)
    global_batch: int | None = option(None, "Samples per step over all devices.", min=1, rich_help_panel=PANEL)
    logical_workers: int | None = option(None, "Logical workers of the job.", min=1, rich_help_panel=PANEL)
    deadline: str | None = option(None, "From its start: 6h, 1h30m.", rich_help_panel=PANEL)
    budget: float | None = option(None, "Most to spend.", min=0.01, metavar="USD", rich_help_panel=PANEL)
    region: str = option("", "Regions, joined by commas.", metavar="NAMES", rich_help_panel=PANEL)
    types: str = option("", "GPU or instance types.", "--type", metavar="NAMES", rich_help_panel=PANEL)
    catalog: Path | None = option(None, "Your own catalog (CSV).", metavar="FILE", rich_help_panel=PANEL)
    spot_trace: Path | None = option(
        None,
        "Replay a recorded spot market (CSV time_s,zone,count,price, or SkyPilot's JSON) under every spot policy.",
        metavar="FILE",
        rich_help_panel=PANEL,
    )
    length: str | None = option(
        None, "With --spot-trace: how long the job takes on all machines.", rich_help_panel=PANEL
    )
    machines: int = option(16, "With --spot-trace: machines it can use.", min=1, rich_help_panel=PANEL)
    scaling: float = option(
        1.0, "With --spot-trace: speed grows as machines to this power.", min=0.1, max=1.0, rich_help_panel=PANEL
    )
    on_demand_price: float = option(3.06, "With --spot-trace: USD per machine-hour.", min=0.001, rich_help_panel=PANEL)
    spot_price: float | None = option(
        None, "With --spot-trace: USD per machine-hour where the trace has no prices.", min=0.001, rich_help_panel=PANEL
    )
    seeds: int = option(5, "Runs, each with a seed of its own.", min=1, rich_help_panel=PANEL)

    def check_unused(self) -> None:
        """Refuse options of rented machines where none are asked for."""
        refuse_given(list_given(self), "options of rented machines need --cloud")

    def check_market(self) -> None:
        """Refuse options that a replay of a recorded market would ignore, and those of one where there is none."""
        if self.spot_trace is None:
            refuse_given(
                [name for name in list_given(self) if name in OF_MARKET],
                "options of a recorded market need --spot-trace FILE",
            )
        else:
            rule = "--spot-trace replays machines alike, without it: give --length, --deadline and --machines"
            refuse_given([name for name in list_given(self) if name in OF_RENTAL], rule)


def simulate_rental(asked: RentalOptions, words: Sequence[Path], form: OutputForm) -> None:
    """Simulate the job on demand and with spot, once per seed, and print what it cost and whether it was on time."""
    command = "springtide simulate --cloud"
    asked.check_market()
    if asked.spot_trace is not None:
        refuse_given(list(map(str, words)), "--spot-trace names the market itself; leave TRACE out")
        market = import_experiment("spot_replay", "recorded spot markets are replayed", command)
        market.simulate_market(asked, form)
        return
    study = import_experiment("rental_simulation", "jobs on rented machines are simulated", command)
    study.simulate_rental(asked, words, form)
