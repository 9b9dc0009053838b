"""Wrappers around a client: they count calls, fence writes by a lease, and write through to caches."""
