"""The parts of a job file beside its model: mappings inside it, sweeps, changes at submission."""
