"""Remote handle: the memories of a server over HTTP."""
