"""One job on this machine: its runner, attempts, events, hang detection, restarts, logs."""
