"""What other objects have to say about a write: quotas, limits of a namespace, disruption budgets."""
