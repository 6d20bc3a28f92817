"""Networks: agents called in turn, as a router says, over one state."""
