"""`springtide profile`: measure a training script on the devices at hand, for the planner and the platform."""

import os
import shutil
import subprocess
from pathlib import Path

import typer

from springtide.cli.outputs import OUTPUT, OutputOption, tell
from springtide.errors import InputError


def run(
    script: Path = typer.Argument(metavar="SCRIPT", help="A training script that calls springtide.init."),
    arguments: list[str] = typer.Argument(None, metavar="[-- ARGUMENT...]", help="Arguments of the script."),
    devices: str = typer.Option(None, metavar="COUNTS", help="Device counts, joined by commas. Default: 1 and all."),
    seconds: float = typer.Option(120.0, min=1, help="Time for all runs together, start-up apart."),
    steps: int = typer.Option(30, min=5, help="Steps to time in each run, after the warm-up."),
    model: str = typer.Option(None, metavar="NAME", help="What to call it. Default: the script's folder or name."),
    device_type: str = typer.Option(None, metavar="NAME", help="What to call the devices. Default: as found."),
    out: Path = typer.Option(None, metavar="FILE", help="Where to write the points. Default: NAME.points.csv."),
    output: OutputOption = OUTPUT,
) -> None:
    """Measure a script: a few batch sizes and device counts, tens of steps each, one run repeated for the noise.

    Example:

      springtide profile train.py --seconds 60 --out train.points.csv -- --lr 0.1
    """
    from springtide.throughput.probing import ProfiledScript, profile_script
    from springtide.throughput.tables.points import write_notes, write_points

    name = model or (script.resolve().parent.name if script.stem in ("train", "main") else script.stem)
    found, most = find_devices()
    counts = read_counts(devices) if devices else sorted({1, most})
    target = out or Path(f"{name}.points.csv")
    if not target.absolute().parent.is_dir():
        raise InputError(f"cannot write {target}: its folder does not exist; give another with --out FILE")
    subject = ProfiledScript(script, tuple(arguments or ()), name, device_type or found)
    profile = profile_script(subject, counts, seconds, steps, tell)
    try:
        target.write_text(write_points(profile.points), encoding="utf-8")
        notes = write_notes(target, profile.notes)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}; give another with --out FILE") from None
    if output.write({"schema": 1, "points": str(target), "notes": dict(profile.notes)}):
        return
    for point in profile.points:
        print(f"{point.layout.devices} devices, local batch {point.layout.local_batch:g}: {point.step_s:.4g} s a step")
    print(f"written to {target} and {notes}; two equal runs differed by {profile.notes['noise']:.1%}")


def find_devices() -> tuple[str, int]:
    """The type and number of devices at hand: GPUs by nvidia-smi, else two CPU slots at most."""
    tool = shutil.which("nvidia-smi")
    if tool:
        query = [tool, "--query-gpu=name", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
        names = [line.strip() for line in found.stdout.splitlines() if line.strip()]
        if found.returncode == 0 and names:
            return names[0].removeprefix("NVIDIA ").removeprefix("Tesla "), len(names)
    return "cpu", min(2, os.cpu_count() or 1)


def read_counts(text: str) -> list[int]:
    """Device counts from `1,2,4`, ascending."""
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InputError(f"devices {text!r} are not counts; write 1,2,4") from None
    if not counts or counts[0] < 1:
        raise InputError(f"devices {text!r} must be at least 1 each")
    return counts
