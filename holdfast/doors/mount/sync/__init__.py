"""Memory stores as a directory of plain files that is kept as the stores are, where FUSE is not."""
