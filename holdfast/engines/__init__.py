"""Layer 1: the storage engines. SQL dialects end here."""
