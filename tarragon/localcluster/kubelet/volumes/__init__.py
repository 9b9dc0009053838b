"""The files of a pod: ConfigMaps, Secrets, projected tokens, mounts, and how they are kept current."""
