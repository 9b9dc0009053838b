"""Caches fed by list and watch, trimmed to the fields that the operator reads, and indexes over them."""
