"""Gang admission: build a snapshot, run the policy on it, validate its decisions, and write them to job status."""
