"""What Prometheus reads: definitions, the registry, and the counts of jobs by phase."""
