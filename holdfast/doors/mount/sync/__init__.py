"""Memory stores as a synced directory of plain files, for machines without FUSE."""
