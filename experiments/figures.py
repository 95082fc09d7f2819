"""The list of figures: which paper, which number, and the two functions that find its data and draw it.

A figure's module is imported only when it is made. A new figure costs two functions and one line here.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from experiments.figure_context import FigureContext
from experiments.findings import Findings
from springtide.errors import InputError

HOME = "experiments"
PAPERS = ("elasticflow", "easyscale", "srifty")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a paper: `measure(context)` finds its data, `draw(findings)` its picture."""

    paper: str
    number: str
    title: str
    home: str
    measure_name: str = "measure"
    draw_name: str = "draw"
    needs: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Its name among all figures."""
        return f"{self.paper}-{self.number}"

    def measure(self, context: FigureContext) -> Findings:
        """Its data."""
        found: Findings = self._find(self.measure_name)(context)
        return found

    def draw(self, findings: Findings) -> Any:
        """Its picture."""
        return self._find(self.draw_name)(findings)

    def _find(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(f"{HOME}.{self.paper}.{self.home}"), name)
        return function


TORCH = ("torch", "sklearn")
FIGURES = (
    Figure("elasticflow", "6a", "Deadlines met, small testbed", "testbed", "measure_small"),
    Figure("elasticflow", "6b", "Deadlines met, large testbed", "testbed", "measure_large"),
    Figure("elasticflow", "7", "Allocation and admission over time", "timeline"),
    Figure("elasticflow", "8a", "Deadlines met beside Pollux", "traces", "measure_pollux"),
    Figure("elasticflow", "8b", "Deadlines met on every trace", "traces", "measure_all"),
    Figure("elasticflow", "9", "What admission and elastic shares bring", "ablation"),
    Figure("elasticflow", "10", "Cluster efficiency and makespan", "efficiency"),
    Figure("elasticflow", "11", "Deadlines beside best-effort jobs", "mixture"),
    Figure("elasticflow", "12a", "Time to profile a model", "costs", "measure_probes", "draw_probes", TORCH),
    Figure("elasticflow", "12b", "Pause of a rescale", "costs", "measure_pauses", "draw_pauses", TORCH),
    Figure("easyscale", "9", "Loss through three stages, by bits", "consistency", needs=TORCH),
    Figure("easyscale", "10", "Memory and throughput against packing", "sharing", needs=TORCH),
    Figure("easyscale", "11", "Cost of context switches", "switching", needs=TORCH),
    Figure("easyscale", "12", "Cost of determinism", "determinism", needs=TORCH),
    Figure("easyscale", "13", "Gradient copies and synchronisation", "gradients", needs=TORCH),
    Figure("easyscale", "14", "Job completion time and makespan", "cluster", "measure_times", "draw_times"),
    Figure("easyscale", "15", "Allocation over time", "cluster", "measure_allocation", "draw_allocation"),
    Figure("srifty", "latency", "Predicted and measured iteration latency", "latency"),
    Figure("srifty", "choices", "The recommended machines and the usual choices", "choices"),
    Figure("srifty", "mixes", "What spot and mixed types save", "mixes"),
    Figure("srifty", "probes", "Error by the number of probes", "probes"),
)


def choose_figures(paper: str | None, ids: Sequence[str]) -> list[Figure]:
    """The figures of a paper (None: of all) with these ids (none: all), in the order of the list.

    An id is whole (`elasticflow-8a`), a number (`8a`, of every paper that has it), or a number without its letter.
    """
    if paper is not None and paper not in PAPERS:
        raise InputError(f"unknown paper {paper!r}; there are: {', '.join(PAPERS)}")
    mine = [figure for figure in FIGURES if paper in (None, figure.paper)]
    wanted = [part.strip() for given in ids for part in given.replace("/", ",").split(",") if part.strip()]
    for name in wanted:
        if not any(matches(figure, name) for figure in mine):
            raise InputError(f"unknown figure {name!r}; there are:\n{describe(mine)}")
    return [figure for figure in mine if not wanted or any(matches(figure, name) for name in wanted)]


def matches(figure: Figure, name: str) -> bool:
    """Whether a user's name means this figure."""
    short = name.lower().removeprefix("fig").removeprefix(".").removeprefix(f"{figure.paper}-")
    return short in (figure.number, figure.number.rstrip("ab"))


def describe(figures: Iterable[Figure]) -> str:
    """The figures as a list for people."""
    return "\n".join(f"  {figure.id:20} {figure.title}" for figure in figures)
