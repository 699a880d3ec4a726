"""The live view: a client of a run's event stream (docs/events.md) and nothing else."""
