"""The stages of `reconstruct` on the machines of a Ray cluster, by Ray Data. Nothing here schedules."""
