"""One job's supervisor as a process: `python -m springtide.training.launch SCRIPT ...`, spoken to in JSON lines.

What an executor starts, so that the server itself never imports torch. Commands come on standard input: {"do":
"rescale", "counts": [2, 1]}, {"do": "checkpoint"}, {"do": "stop"}, {"do": "kill", "rank": 1}. Events go to standard
output as they happen. The settings of the job are read from the environment, as everywhere (`protocol`).
"""

import argparse
import json
import os
import selectors
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from springtide.errors import SpringtideError
from springtide.training.protocol import read_settings
from springtide.training.supervision import Job, Supervisor


class Launch:
    """A supervisor between an executor's pipes."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.waiting: list[list[int]] = []
        self.rest = b""
        supervisor.selector.register(sys.stdin.fileno(), selectors.EVENT_READ, lambda _: self.listen())

    def listen(self) -> None:
        """Take the commands that have come in; at the end of the input the job goes on without more."""
        data = os.read(sys.stdin.fileno(), 1 << 16)
        if not data:
            self.supervisor.selector.unregister(sys.stdin.fileno())
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.obey(json.loads(line))

    def obey(self, command: dict[str, Any]) -> None:
        """Carry out a command; a rescale waits until the one before it is complete, and only the newest waits."""
        if command["do"] == "rescale":
            self.waiting = [command["counts"]]
        elif command["do"] == "kill":
            self.supervisor.kill(command["rank"])
        else:
            self.supervisor.command(**command)

    def run(self, counts: list[int]) -> None:
        """Run the job to its end."""
        supervisor = self.supervisor
        supervisor.start(counts)
        while not (supervisor.finished and not supervisor.alive()):
            supervisor.check()
            supervisor.pump(1.0)
            if self.waiting and supervisor.next_roster is None and not supervisor.finished:
                supervisor.rescale(self.waiting.pop())
            self.tell()
        self.tell()

    def tell(self) -> None:
        """Pass on the events not yet told."""
        for event in self.supervisor.events:
            print(json.dumps(event), flush=True)
        self.supervisor.events.clear()


def main() -> None:
    """Run the job on the command line."""
    parser = argparse.ArgumentParser(description="Supervise one elastic training job.")
    parser.add_argument("--counts", required=True, help="logical workers per process, e.g. 2+1+1")
    parser.add_argument("--work-dir", type=Path, help="for sockets and the processes' output")
    parser.add_argument("--fork-socket", type=Path, help="a warm fork server to use")
    parser.add_argument("--allow-code-change", action="store_true", help="resume from checkpoints of other code")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    settings = read_settings()
    allowed = settings.allow_code_change or given.allow_code_change
    settings = replace(settings, roster=None, allow_code_change=allowed)
    job = Job(given.script.resolve(), tuple(given.arguments), Path.cwd(), settings)
    if given.work_dir is not None:
        given.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        with Supervisor(job, given.work_dir, given.fork_socket) as supervisor:
            Launch(supervisor).run([int(count) for count in given.counts.split("+")])
    except SpringtideError as error:
        print(json.dumps({"event": "failed", "process": "", "text": str(error)}), flush=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
