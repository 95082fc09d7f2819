"""Telling people of their jobs, by webhook, mail or command: decided with the step that makes it so, sent behind it."""
