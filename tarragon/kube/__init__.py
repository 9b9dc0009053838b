"""Partial types of Kubernetes objects, selectors, patches, JSON and YAML, and the validation of pod templates."""
