"""The work queue with its retry backoff, the backoff of refused writes, wake-up signals, and concurrent writes."""
