"""Plans: tasks of steps, what may be wrong with them, and how they are run and planned."""
