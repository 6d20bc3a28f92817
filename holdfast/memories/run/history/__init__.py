"""The history of a run: its versions, forks of them, what is kept and what happens once."""
