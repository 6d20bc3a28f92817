"""Network state: the results and values that the agents of one network pass along."""
