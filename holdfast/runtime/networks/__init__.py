"""Networks: agents on one state, called in turn as a router decides."""
