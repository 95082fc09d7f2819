"""Each performance claim as one script that prints a ratio, with the alternative measured beside it in the same run."""
