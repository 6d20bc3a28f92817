"""Where vectors are kept, and which of them are near one."""
