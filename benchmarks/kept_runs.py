"""What finished runs gave, kept in a file, so that a table that takes long can be made in pieces and by several."""

import json
from pathlib import Path
from typing import Any


class KeptRuns:
    """A file of JSON lines, one per finished run; without a file nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """What each run gave, by its key; of one that was made again, what it gave last."""
        if self.path is None or not self.path.exists():
            return {}
        whole = [json.loads(line) for line in self.path.read_text().splitlines() if line.endswith("}")]
        return {line["key"]: line["found"] for line in whole}

    def add(self, key: str, found: Any) -> None:
        """Keep one more."""
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key, "found": found}) + "\n")
