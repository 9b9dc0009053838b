"""How pods are lost and replaced: displacement, graceful eviction, gang restarts, forced deletion, start timeouts."""
