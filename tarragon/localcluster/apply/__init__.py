"""Patches of all four types; server-side apply is in `managed_fields`."""
