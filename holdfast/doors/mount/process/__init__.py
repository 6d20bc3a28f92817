"""The process of a mount: setup, main loop, registry and unmounting."""
