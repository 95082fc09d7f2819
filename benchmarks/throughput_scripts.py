"""Our own scripts on CPU slots: a profile at three batches predicts an unseen batch on one and two processes.

    python -m benchmarks.throughput_scripts [--seconds 60]

Prints predicted against measured for each, the mean error, and the error of the nearest measured layout beside it. The
noise between two equal runs is printed too: on a busy machine it is the floor of any error.
"""

import argparse
from pathlib import Path

import springtide.examples
from springtide.throughput.forms import DEFAULT_FORM
from springtide.throughput.points import Point, make_layout
from springtide.throughput.predictions import Predictor
from springtide.throughput.probing import Subject, Trial, profile_script, run_trial

EXAMPLES = ("cnn", "resnet")
UNSEEN = 1.5
BAR = 0.08


def measure(name: str, seconds: float) -> list[tuple[float, float]]:
    """Errors of our form and of the nearest neighbour at the unseen batch, on one and two processes."""
    script = Path(springtide.examples.__file__).parent / name / "train.py"
    subject = Subject(script, (), name, "cpu")
    profile = profile_script(subject, (1, 2), seconds, 40, lambda line: None)
    print(f"{name}: two equal runs differed by {profile.notes['noise']:.1%}")
    errors = []
    for processes in (1, 2):
        found = run_trial(subject, Trial(processes, UNSEEN), seconds / 6, 40)
        layout = make_layout(name, "cpu", 1, processes, found.facts["local_batch"])
        point = Point(layout, found.step_s)
        (ours,) = Predictor(profile.points).predict([layout])
        (nearest,) = Predictor(profile.points, form="nearest").predict([layout])
        errors.append((abs(ours.step_s / point.step_s - 1), abs(nearest.step_s / point.step_s - 1)))
        print(
            f"  {processes} processes, batch {layout.local_batch:g}: measured {point.step_s:.4g} s, {DEFAULT_FORM} "
            f"{ours.step_s:.4g} s ({errors[-1][0]:.1%}), nearest {nearest.step_s:.4g} s ({errors[-1][1]:.1%})"
        )
    return errors


def main() -> None:
    """Measure every example and print the mean errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for each script's profile")
    seconds = parser.parse_args().seconds
    errors = [error for name in EXAMPLES for error in measure(name, seconds)]
    ours, nearest = (sum(column) / len(errors) for column in zip(*errors, strict=True))
    print(f"mean error {ours:.1%} (bar {BAR:.0%}); nearest {nearest:.1%}")


if __name__ == "__main__":
    main()
