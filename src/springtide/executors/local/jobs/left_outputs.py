"""What a job was to leave, and whether it has."""

from pathlib import Path

from springtide.executors.local.as_user import do_as
from springtide.executors.protocol import JobSpec


def find_missing(spec: JobSpec) -> list[str]:
    """The names and patterns of which a job has left no file."""

    def look() -> list[str]:
        folder = Path(spec.output_dir)
        return [name for name in spec.outputs if next(folder.glob(name), None) is None]

    if not spec.outputs:
        return []
    try:
        return [str(name) for name in do_as(spec.run_as, look)]
    except (OSError, KeyError):
        return list(spec.outputs)
