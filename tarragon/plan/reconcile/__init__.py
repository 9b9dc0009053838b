"""The reconcile decision for one job: what to create, delete, restart, suspend or finish now."""
