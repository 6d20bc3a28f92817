"""One call of an agent: what is sent, what comes back, what its tools do, how it ends."""
