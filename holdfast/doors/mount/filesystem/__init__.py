"""The filesystem core of the mount, independent of a FUSE binding."""
