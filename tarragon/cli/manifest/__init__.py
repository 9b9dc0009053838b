"""Files that are submitted: reading, overrides, local images, missing dependencies, dry runs."""
