"""Chronus (SoCC 2021): leases for jobs with deadlines, the rest of the cluster as spot."""
