"""What other objects have to say about a write: quotas."""
