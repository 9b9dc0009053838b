"""Usage of memory, CPU and disk, limits, and eviction of pods that exceed their storage limits."""
