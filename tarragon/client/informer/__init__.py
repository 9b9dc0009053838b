"""Caches that list and watch, as client-go's informers do."""
