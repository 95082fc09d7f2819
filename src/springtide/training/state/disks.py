"""Whether a disk is nearly full. The platform's word on it for checkpoints, `doctor` and `gc`; needs no torch."""

import shutil
from pathlib import Path

LOW_SHARE, LOW_BYTES = 0.05, 2_000_000_000


def is_disk_low(path: Path) -> bool:
    """Whether less than 5 % or 2 GB are free where a path lies."""
    usage = shutil.disk_usage(path)
    return usage.free < max(LOW_BYTES, LOW_SHARE * usage.total)
