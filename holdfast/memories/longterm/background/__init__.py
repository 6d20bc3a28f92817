"""Work that is done after a call has returned: mining what was said, and making vectors."""
