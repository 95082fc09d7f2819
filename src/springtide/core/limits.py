"""The largest numbers that the platform accepts; every number from outside is checked against them where it enters."""

#: Global steps of a job; far below what a database holds, far above what anybody trains.
MOST_STEPS = 10**12
#: Logical workers of a job, and devices of a cluster.
MOST_DEVICES = 1 << 16
#: The largest integer of a database and of most JSON readers.
MOST_INTEGER = (1 << 63) - 1
