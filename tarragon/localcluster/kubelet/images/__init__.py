"""Maps image names to local environments and entrypoints, as images.yaml says."""
