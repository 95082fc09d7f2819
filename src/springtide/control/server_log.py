"""What a server says: JSON lines on stderr, or in the background in a file that is rotated before it fills the disk."""

import json
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

MOST_BYTES = 10 << 20
KEPT_FILES = 3


class JsonFormatter(logging.Formatter):
    """Log records as JSON lines."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, Any] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class RotatedLog(RotatingFileHandler):
    """A private file of bounded size, and a few before it; what the process prints itself goes to the newest, too."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MOST_BYTES, backupCount=KEPT_FILES, encoding="utf-8", errors="backslashreplace")
        self.follow()

    def doRollover(self) -> None:
        """Begin a new file."""
        super().doRollover()
        self.follow()

    def follow(self) -> None:
        """Let stdout and stderr lead to the file as it is now."""
        assert self.stream is not None, "opened at once"
        os.fchmod(self.stream.fileno(), 0o600)
        for printed, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
            printed.flush()
            os.dup2(self.stream.fileno(), descriptor)


def set_up_logging(file: Path | None = None) -> None:
    """JSON lines on stderr, or in a file."""
    handler = logging.StreamHandler() if file is None else RotatedLog(file)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # anybody can send what is not HTTP, a line each time
