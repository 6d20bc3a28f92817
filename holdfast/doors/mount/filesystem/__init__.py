"""Files over memory stores: the mount without a binding, where every failure is an errno."""
