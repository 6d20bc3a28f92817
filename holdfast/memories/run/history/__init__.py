"""The history of a run: versions, forks, limits, effects that happen once."""
