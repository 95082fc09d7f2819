"""The executor of a lead, wherever that runs: beside this server, or on another machine that has the same home.

A server that takes over from one on another machine finds the lead there at work, and its jobs with it. Only where
nobody answers any more is another lead started, here, on the journal of the one before.
"""

import contextlib
from pathlib import Path

from springtide.errors import ExecutorError
from springtide.executors.hosts.lead_address import read_key, read_lead
from springtide.executors.hosts.lead_dialer import dial_as_server
from springtide.executors.local.executor import AgentConnection, LocalExecutor

#: How long a lead on another machine may take to let a server in.
REACH_S = 3.0


class LeadExecutor(LocalExecutor):
    """The jobs of the hosts that have joined a lead."""

    def dial(self) -> AgentConnection:
        """A new connection to the lead: over the socket in the home if it is of this machine, else over the network."""
        try:
            return super().dial()
        except TimeoutError:  # it is here, and stopped
            raise
        except OSError:
            elsewhere = dial_elsewhere(self.state_dir)
            if elsewhere is None:
                raise
            return elsewhere


def dial_elsewhere(home: Path) -> AgentConnection | None:
    """A connection to the lead that the home names, if it answers."""
    with contextlib.suppress(OSError, ExecutorError):
        return AgentConnection(dial_as_server(read_lead(home), read_key(home), REACH_S), None)
    return None
