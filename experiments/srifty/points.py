"""The measured points behind Srifty's figures: the public tables where they are at hand, else the packaged ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.caches import digest_files
from experiments.figure_context import FigureContext
from springtide.throughput.tables.formats import TableFormat, import_points
from springtide.throughput.tables.points import Point
from springtide.throughput.tables.profiles import PACKAGED

PACKAGED_NOTE = "Packaged tables, made by a formula, stand in for measurements."
# The T4 tables call ResNet-50 by its data set.
SAME_MODEL = {"imagenet": "resnet50"}


@dataclass(frozen=True, slots=True)
class Measured:
    """The points of one device type, with what must be said of them and a digest of their files."""

    points: tuple[Point, ...]
    notes: tuple[str, ...]
    digest: str


def load_a100(context: FigureContext) -> Measured:
    """ElasticFlow's A100 table."""
    return _load(context.sources.profiles, "a100", 8)


def load_t4(context: FigureContext) -> Measured:
    """Pollux' T4 measurements, else a T4 table."""
    folder = context.sources.measurements
    if folder is not None and (folder / "pollux-t4").is_dir():
        home = folder / "pollux-t4"
        return Measured(
            tuple(import_points(TableFormat(home, "t4", 4), "pollux")), (), digest_files(home.glob("*.csv"))
        )
    return _load(context.sources.profiles, "t4", 4)


def _load(profiles: Path | None, kind: str, per_node: int) -> Measured:
    home = (profiles or PACKAGED) / kind
    notes = () if profiles else (PACKAGED_NOTE,)
    return Measured(
        tuple(import_points(TableFormat(home, kind, per_node), "elasticflow")), notes, digest_files(home.glob("*.csv"))
    )


def join_types(tables: Sequence[Measured]) -> list[Point]:
    """The points of several device types, with one name per model."""
    found = [point for table in tables for point in table.points]
    named = [SAME_MODEL.get(point.layout.model, point.layout.model) for point in found]
    return [replace(p, layout=replace(p.layout, model=name)) for p, name in zip(found, named, strict=True)]
