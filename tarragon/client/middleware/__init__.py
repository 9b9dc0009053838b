"""Clients around a client: counted, fenced by the lease, and written through to caches."""
