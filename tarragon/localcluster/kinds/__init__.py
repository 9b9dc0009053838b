"""The kinds that are served: their resources, shapes, versions and rows of columns."""
