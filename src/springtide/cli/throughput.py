"""`springtide throughput`: fit measured step times, predict others, import published tables, judge the forms.

Example:

  springtide throughput fit points.csv --predict query.csv
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.checkout import import_experiment
from springtide.cli.option_groups import flatten
from springtide.cli.outputs import OUTPUT, OutputForm, OutputOption, check_picture, print_table, tell, write_text
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.throughput.predictions import Prediction
    from springtide.throughput.tables.points import Query

app = typer.Typer(rich_markup_mode="rich")


@app.command()
@flatten
def fit(
    result: OutputForm,
    points: Path = typer.Argument(metavar="POINTS.csv", help="Measured points."),
    predict: Path = typer.Option(..., metavar="QUERY.csv", help="Layouts to predict."),
    prior: Path = typer.Option(None, metavar="OTHER.csv", help="Points of other models on the same kind of cluster."),
    form: str = typer.Option("physical", metavar="NAME", help="physical, pollux, ernest, nearest, one-node, perfect."),
) -> None:
    """Fit measured step times and predict others, each with a 90 % interval.

    Columns: model,device_type,nodes,devices,local_batch,step_s and optionally max_per_node, sync_s.

    Example:

      springtide throughput fit points.csv --predict query.csv --prior others.csv -o json
    """
    from springtide.throughput.predictions import Predictor
    from springtide.throughput.tables.points import read_points, read_queries

    queries = read_queries(predict)
    others = read_points(prior) if prior is not None else []
    predictor = Predictor(read_points(points), others, form)
    predictions = predictor.predict([query.layout for query in queries])
    pairs = list(zip(queries, predictions, strict=True))
    document = {"schema": 1, "predictions": [_describe(query, made) for query, made in pairs]}
    if not result.write(document):
        _print_predictions(predictions)


@app.command("import")
def import_(
    source: Path = typer.Argument(metavar="PATH", help="A published table, or a folder of them."),
    name: str = typer.Option(..., "--format", metavar="NAME", help="elasticflow or pollux."),
    device_type: str = typer.Option(None, help="What to call the devices. Default: the folder's name."),
    per_node: int = typer.Option(8, min=1, help="Devices of a full node (elasticflow tables do not say)."),
    out: str = typer.Option("-", metavar="FILE|-", help="Where to write the points."),
    output: OutputOption = OUTPUT,
) -> None:
    """Turn published tables into a points file.

    Example:

      springtide throughput import profiles/a100 --format elasticflow --out a100.csv
    """
    from springtide.throughput.tables.formats import TableFormat, import_points
    from springtide.throughput.tables.points import write_points

    if output is OutputOption.JSON and out == "-":
        raise InputError("stdout holds either the points or JSON; say where the points go with --out FILE")
    devices = device_type or (source if source.is_dir() else source.parent).resolve().name
    points = import_points(TableFormat(source, devices, per_node), name)
    write_text(write_points(points), out)
    models = sorted({point.layout.model for point in points})
    output.write({"schema": 1, "file": out, "points": len(points), "models": models})
    tell(f"{len(points)} points of {len(models)} models")


@app.command()
@flatten
def evaluate(
    result: OutputForm,
    data: Path = typer.Argument(metavar="DATA.csv", help="Measured points of one or more models."),
    split: str = typer.Option("probes", metavar="SPLIT", help="sparse, dense, small, probes; or 1,8,16:2,4; or <=8."),
    forms: str = typer.Option("all", "--form", metavar="NAMES", help="Forms, joined by commas, or all."),
    prior: bool = typer.Option(True, help="Also with a prior from the other models."),
    confidence: float = typer.Option(0.7, min=0.5, max=0.999, help="How sure a choice must be of its deadline."),
    plot: Path = typer.Option(None, metavar="FILE", help="Draw predicted against measured."),
) -> None:
    """Judge the forms on rows they have not seen: error, coverage of the interval, and cost of the choices.

    Example:

      springtide throughput evaluate a100.csv --split sparse --plot a100.png
    """
    if plot is not None:
        check_picture(plot)
    command = "springtide throughput evaluate DATA.csv"
    study = import_experiment("form_evaluation", "forms are judged", command)
    judged = study.judge(data, study.find_split(split), forms, prior, confidence)
    if plot is not None:
        judged.draw(plot)
    if not result.write(judged.describe()):
        headings, rows = judged.tabulate()
        print_table(headings, rows, title=judged.title, legend=judged.legend)


def _describe(query: "Query", made: "Prediction") -> dict[str, Any]:
    """A prediction beside the columns of its query, numbers as numbers."""
    given = {name: _read_cell(text) for name, text in query.cells.items()}
    if "step_s" in given:
        given["measured_s"] = given.pop("step_s")
    made_fields = {"step_s": made.step_s, "low_s": made.low_s, "high_s": made.high_s}
    return given | made_fields | {"form": made.form, "note": made.note}


def _read_cell(text: str) -> str | float | int | None:
    if text == "":
        return None
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() and text.lstrip("-").isdecimal() else value


def _print_predictions(predictions: Sequence["Prediction"]) -> None:
    headings = ("model", "type", "nodes", "devices", "batch", "step s", "90 % interval", "note")
    legend = "batch: samples per device; step s: seconds of a step; 90 % interval: in nine cases of ten it is within"
    print_table(headings, map(_show_prediction, predictions), legend=legend)


def _show_prediction(made: "Prediction") -> tuple[str, ...]:
    at = made.layout
    interval = f"{made.low_s:.4g} - {made.high_s:.4g}"
    counts = (f"{at.nodes}", f"{at.devices}", f"{at.local_batch:g}")
    return (at.model, at.device_type, *counts, f"{made.step_s:.4g}", interval, made.note)
