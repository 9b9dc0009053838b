"""The work queue of jobs, and what wakes the scheduler: retries with backoff, refused writes, bounded concurrency."""
