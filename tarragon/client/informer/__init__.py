"""Caches that are kept up to date by list and watch, like the informers of client-go."""
