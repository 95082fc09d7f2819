"""The actor that Ray keeps on a node for us: it starts the agent of the host there, and says how that went.

The agent is a process of its own: it outlives the actor, its raylet and Ray itself, and speaks with its lead directly.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from springtide import __version__
from springtide.executors.hosts.host_folders import has_left, make_state_dir, read_agent
from springtide.executors.hosts.lead_address import HOSTS, LeadAddress, write_lead
from springtide.executors.local.daemon import is_alive, start_detached
from springtide.executors.local.discovery import discover
from springtide.executors.local.jobs.worker_logs import read_tail
from springtide.executors.local.paths import LOG
from springtide.executors.local.processes.fork_servers import find_own_versions


def survey_host(witness: str, cpu_slots: str | None) -> dict[str, Any]:
    """What this host has, and what it reads in a file of the server's home."""
    try:
        content = Path(witness).read_text()
    except OSError:
        content = ""
    devices = discover(cpu_slots).devices
    return {
        "version": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": find_own_versions()["torch"],
        "nice": os.getpriority(os.PRIO_PROCESS, 0) if os.geteuid() != 0 else 0,
        "witness": content,
        "devices": f"{len(devices)} x {', '.join(sorted({device.type for device in devices}))}",
    }


#: An agent that ends sooner was not able to serve: it was refused, or its host has no room for it.
SOON_S = 30.0


class HostActor:
    """What Ray runs on a node."""

    def __init__(self, name: str, home: str, cpu_slots: str | None, node: str = "") -> None:
        self.name = name
        self.node = node
        self.home = Path(home)
        self.cpu_slots = cpu_slots
        self.state_dir = make_state_dir(self.home, name)
        self.pid: int | None = None
        self.started_s = 0.0
        #: What the last agent said before it ended soon; empty since one has lasted from one look to the next.
        self.last_words = ""

    def look(self, lead: dict[str, Any] | None = None) -> dict[str, Any]:
        """Have the agent running, and say what is known of it; `lead` is where the lead listens, if that is told."""
        if self.pid is not None and is_alive(self.pid):
            self.last_words = ""
        else:
            ended_soon = self.pid is not None and time.monotonic() - self.started_s < SOON_S
            self.last_words = self.read_last_words() if ended_soon else ""
            self.pid, self.started_s = read_agent(self.state_dir), time.monotonic()
        is_away = self.pid is None and has_left(self.state_dir, self.node)
        self.put_lead(lead, is_away)
        if self.pid is None and not is_away:
            self.pid = self.start()
            time.sleep(0.2)
        up = self.pid is not None and is_alive(self.pid)
        return {
            "name": self.name,
            "pid": self.pid,
            "up": up and not self.last_words,
            "has_left": not up and has_left(self.state_dir, self.node),
            "said": self.last_words if up else self.read_last_words(),
            "version": __version__,
            "python": ".".join(map(str, sys.version_info[:3])),
            "torch": find_own_versions()["torch"],
            "nice": os.getpriority(os.PRIO_PROCESS, self.pid) if up and self.pid else 0,
        }

    def put_lead(self, lead: dict[str, Any] | None, is_away: bool) -> None:
        """Have the lead's address, and with it the token, where an agent serves that reads it, and nowhere else."""
        if is_away:
            (self.state_dir / HOSTS).unlink(missing_ok=True)
        elif lead is not None:
            write_lead(self.state_dir, LeadAddress(**lead))

    def read_last_words(self) -> str:
        """What the agent said last."""
        return (read_tail(self.state_dir / LOG, lines=1) or ["nothing"])[-1]

    def start(self) -> int | None:
        """Start the agent, as nobody's child."""
        command = [sys.executable, "-m", "springtide.executors.hosts.host_agent", "--detach"]
        command += ["--home", str(self.home), "--name", self.name, "--state-dir", str(self.state_dir)]
        command += ["--cpu-slots", self.cpu_slots] if self.cpu_slots is not None else []
        command += ["--node", self.node]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return start_detached(command, self.state_dir / LOG, {**environment, "PYTHONPATH": os.pathsep.join(sys.path)})

    def kill_agent(self) -> None:
        """End the agent at once; its guests end with it."""
        if self.pid is not None and is_alive(self.pid):
            os.kill(self.pid, signal.SIGKILL)

    def give_notice(self) -> None:
        """The node is about to go: have the guests leave."""
        if self.pid is not None and is_alive(self.pid):
            os.kill(self.pid, signal.SIGTERM)
