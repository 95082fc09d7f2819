"""From profiles and measurements to curves: how fast a job runs on which share of devices."""
