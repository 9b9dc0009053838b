"""The volumes of a pod: ConfigMaps, Secrets, projected tokens, mounts, and their refresh."""
