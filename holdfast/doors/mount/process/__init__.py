"""The process of a mount: what is asked for, begun, told of, looked after and ended."""
