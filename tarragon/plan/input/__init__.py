"""Decodes and validates manifests, and converts and compares them across API versions."""
