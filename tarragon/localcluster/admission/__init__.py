"""Admission by other objects: ResourceQuotas, which count every write and may refuse it. Begin with `quota`."""
