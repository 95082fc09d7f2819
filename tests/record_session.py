"""Records the first ten minutes: types the commands into a real terminal, and writes what it showed as a page.

    python -m tests.record_session > docs/first-ten-minutes.md

Nothing of the page is written by hand but the words between the commands. Times are those of the machine that ran it.
"""

import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLUMNS = 100
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07")
HEAD = f"""# The first ten minutes

What a terminal of {COLUMNS} columns showed, recorded by `python -m tests.record_session` from a real run: an empty
home, and a fresh checkout in the folder `springtide`. The number before a command is the seconds since the first one.
The machine was busy: other programs asked for several times its two cores. So waits are long, and the platform says
that it plans with slower speeds (`other programs used the processors ...`); an idle machine
says nothing of the kind.
"""
PLACES = "WARNING: Location "
#: What is said before a command, and the command.
SCRIPT = (
    (
        "Install it, in an environment of its own. Packages come from where pip finds them; torch is most of the wait.",
        "cd springtide && python3 -m venv .venv && source .venv/bin/activate",
    ),
    ("", "pip install --quiet -c constraints.txt '.[train]' && springtide --version && cd .."),
    ("Is everything there?", "springtide doctor"),
    ("A script and a job file that run as they are.", "springtide new hello && cd hello && cat job.yaml"),
    ("Ask for a promise. Nobody has measured this script, so it is measured first.", "springtide submit job.yaml"),
    ("Why is it where it is?", "springtide why digits-cnn"),
    ("Follow it to its end; here the last lines.", "springtide logs -f digits-cnn 2>&1 | tail -n 6"),
    (
        "Ask for something impossible: what would be promised instead?",
        "springtide submit job.yaml --name hurry --deadline 2s",
    ),
    ("Take the first offer.", "springtide accept hurry"),
    ("All jobs.", "springtide ps --all"),
    ("What has the first one left? Bring its weights here.", "springtide ls digits-cnn"),
    ("", "springtide fetch digits-cnn"),
    ("What was used, and were promises kept?", "springtide usage"),
    ("Done; everything that was started ends.", "springtide stop"),
)


@dataclass(slots=True)
class RecordedTerminal:
    """A shell in a terminal, in an empty folder with an empty home."""

    folder: Path
    descriptor: int = -1

    def open(self) -> None:
        """Start the shell."""
        work, home = self.folder / "work", self.folder / "home"
        work.mkdir()
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", work / "springtide"], check=True)
        path = f"{Path(sys.base_prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        # Where pip looks for packages is this machine's business, and stays out of the page.
        found = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        found["PIP_CONFIG_FILE"] = os.environ.get("PIP_CONFIG_FILE", str(Path.home() / ".config" / "pip" / "pip.conf"))
        shown = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm", "NO_COLOR": "1", "PS1": ""}
        environment = {**found, **shown, "VIRTUAL_ENV_DISABLE_PROMPT": "1"}
        pid, self.descriptor = pty.fork()
        if pid == 0:
            os.chdir(work)
            os.execve("/bin/bash", ["bash", "--noprofile", "--norc", "--noediting"], environment)
        ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        self.type("stty -echo")

    def type(self, line: str) -> str:
        """Type a line; what the terminal showed until it ended."""
        os.write(self.descriptor, f"{line}\necho __ended\n".encode())
        shown = b""
        while b"__ended\r\n" not in shown.replace(b"echo __ended\r\n", b""):
            shown += os.read(self.descriptor, 1 << 16)
        return clean(shown.decode(errors="replace"), self.folder)

    def close(self) -> None:
        """Hang up."""
        os.close(self.descriptor)


def clean(shown: str, folder: Path) -> str:
    """Lines as they stood in the end: without escapes, and without what a line was overwritten with on the way.

    What pip says of this machine's own places for packages is left out too: it is nobody else's.
    """
    text = ESCAPE.sub("", shown).replace("\r\n", "\n").replace(str(folder / "home"), "~")
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in text.split("\n")]
    return "\n".join(line for line in lines if "__ended" not in line and not line.startswith(PLACES)).strip("\n")


def main() -> int:
    """Record, and print the page."""
    folder = Path(tempfile.mkdtemp(prefix="springtide-session-"))
    terminal = RecordedTerminal(folder)
    terminal.open()
    begin_s = time.monotonic()
    print(HEAD)
    try:
        for said, line in SCRIPT:
            at_s = time.monotonic() - begin_s
            shown = terminal.type(line)
            print(f"{said}\n" if said else "", end="\n" if said else "")
            print("\n".join(filter(None, ("```text", f"[{at_s:5.1f} s] $ {line}", shown, "```\n"))), flush=True)
    finally:
        terminal.type("springtide stop")
        terminal.close()
        shutil.rmtree(folder, ignore_errors=True)
    print("Next: [your first job](guides/first-job.md) with the words to it, and [every command](cli.md).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
