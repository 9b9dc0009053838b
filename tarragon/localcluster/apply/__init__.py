"""Patches of all four types; server-side apply is in `fields`."""
