"""Memory stores as directories of ordinary files, through FUSE or as a synced directory."""
