"""One process of a run of a probe: `NAME FOLDER`. If it takes the last step it leaves its digest in the folder."""

import sys
from pathlib import Path

import springtide
from springtide.training.settings import read_settings


def main(name: str, folder: str) -> None:
    """Run the probe as an elastic script."""
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from tests.training.probes.probe_texts import KNOWN, run_text, write_elastic

    process = read_settings().process
    left = run_text(KNOWN[name], write_elastic(KNOWN[name]), int(process[1:]), springtide=springtide)
    Path(folder, f"digest-{process}").write_text(left)


if __name__ == "__main__":
    main(*sys.argv[1:])
