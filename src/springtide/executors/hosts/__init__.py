"""Several hosts: a lead (the agent with a hub) and, on each host, an agent that runs the lead's processes as guests."""
