"""FUSE binding of the mount, on libfuse 3."""
