"""Usage of memory, CPU and disk, limits, and the eviction of pods that use too much."""
