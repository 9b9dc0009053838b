"""How replicas go and come back: displacement, eviction, gang restarts, forced deletion, start timeouts."""
