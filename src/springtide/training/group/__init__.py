"""Processes of one run: rosters, groups, agreement at step boundaries, rescales, the line to the agent."""
