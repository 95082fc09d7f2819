"""The log of a server in the background: JSON lines in files that do not fill the disk."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import logging, os, sys
from pathlib import Path
from springtide.control import server_log
server_log.MOST_BYTES = 2000
server_log.set_up_logging(Path(sys.argv[1]))
for number in range(200):
    logging.getLogger("springtide.x").info("line %d \\udc80", number)
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
os.write(2, b"printed by C\\n")
"""


def test_it_is_rotated_and_what_is_printed_goes_to_the_newest_file(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    subprocess.run([sys.executable, "-c", SCRIPT, str(log)], check=True)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["server.log", "server.log.1", "server.log.2", "server.log.3"]
    assert all(file.stat().st_size <= 2000 + 200 and file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert not any("Invalid HTTP" in file.read_text() for file in files), "strangers cannot fill it"
    *lines, printed = log.read_text().splitlines()
    assert printed == "printed by C"
    assert [json.loads(line)["message"].split()[1] for line in lines][-1] == "199"
