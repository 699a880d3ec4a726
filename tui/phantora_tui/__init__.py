"""The live view of a run in a terminal: a client of the event stream and nothing else. Empty so far."""
