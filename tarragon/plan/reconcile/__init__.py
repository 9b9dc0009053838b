"""The decision about one job: what to create, delete, restart, suspend or finish now."""
