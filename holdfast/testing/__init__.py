"""For those who test against Holdfast: contracts, a model store, fakes."""
