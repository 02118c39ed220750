"""Which nodes of a typed graph cost the accuracy, which of them are damaged, and the fewest to keep higher."""
