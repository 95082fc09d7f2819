"""A plain script that knows nothing of us and saves its work when it is told to leave."""

import os
import signal
import sys
import time
from pathlib import Path

output = Path(os.environ["SPRINGTIDE_OUTPUT"])


def save(number: int, frame: object) -> None:
    """What a careful script does with the notice."""
    (output / "saved").write_text(signal.Signals(number).name)
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
(output / "ready").touch()
time.sleep(600)
