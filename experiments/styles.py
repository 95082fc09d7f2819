"""One look for every figure: fonts, sizes, colours that colour-blind readers tell apart, and how files are written.

Pictures carry no date and no random ids, so that the same data give the same file. Nothing here knows what is drawn.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import Any

# Okabe and Ito's colours
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
GREY, PALE = "#8C8C8C", "#C8C8C8"
CYCLE = (BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
POLICY_COLOURS = {
    "springtide": BLUE,
    "springtide-flexible": SKY,
    "elasticflow": ORANGE,
    "easyscale-homo": ORANGE,
    "easyscale-heter": GREEN,
}
# where policies are lines: a colour and a marker each
POLICY_LINES = {
    "edf": (YELLOW, "o"),
    "gandiva": (PINK, "s"),
    "tiresias": (GREEN, "^"),
    "themis": (BLACK, "D"),
    "chronus": (GREY, "v"),
    "elasticflow": (ORANGE, "P"),
    "springtide": (BLUE, "X"),
}
RULES: dict[Any, Any] = {
    "font.size": 8,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "svg.hashsalt": "springtide",
    "svg.fonttype": "none",
}
WIDTH_IN = 6.6  # of a page's text
DPI = 130


def find_colour(policy: str, number: int = 0) -> str:
    """A policy's colour: its own for the newer ones, grey for the others."""
    return POLICY_COLOURS.get(policy, GREY)


@contextmanager
def look() -> Iterator[None]:
    """Draw and write with our rules, and leave matplotlib as it was."""
    import matplotlib

    with matplotlib.rc_context(RULES):
        yield


class Sheet:
    """A figure of equal panels with a heading, and notes below them on its face."""

    def __init__(self, rows: int, columns: int, height_in: float, width_in: float = WIDTH_IN, **options: Any) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.figure = Figure(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasAgg(self.figure)
        self.panels: list[Any] = list(self.figure.subplots(rows, columns, squeeze=False, **options).flat)
        self.width_in = width_in

    def legend(self, panel: Any, columns: int = 4) -> None:
        """One legend for all panels, above them and so over no data."""
        handles, labels = panel.get_legend_handles_labels()
        self.figure.legend(handles, labels, loc="outside upper center", ncols=columns)

    def finish(self, notes: Iterable[str] = ()) -> Any:
        """The figure with its notes at the foot."""
        text = " ".join(notes)
        if text:
            self.figure.supxlabel(fill(text, int(self.width_in * 19)), fontsize=6.5, color="0.35", x=0.01, ha="left")
        for panel in self.panels:
            if not panel.has_data():
                panel.set_axis_off()
        return self.figure


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG; returns the files."""
    files = [stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")]
    figure.savefig(files[0], dpi=DPI, metadata={"Software": None})
    figure.savefig(files[1], metadata={"Date": None, "Creator": None})
    return files


def set_log_ticks(axis: Any, ticks: Sequence[float]) -> None:
    """Write these values, plainly, on a logarithmic axis, and no others."""
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_ticklabels([f"{tick:g}" for tick in ticks])
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def label_bars(panel: Any, values: Sequence[float | None], at: float, form: str = "{:.2f}") -> None:
    """Write the values of horizontal bars in a column at `at`, beside all marks; a run that was stopped says so."""
    for place, value in enumerate(values):
        if value is None:
            panel.text(0.01 * at, place, "not finished", va="center", fontsize=6.5, color="0.2")
        else:
            panel.text(at, place, form.format(value), va="center", fontsize=6.5, color="0.2")
