"""Builds the operator's container image as an OCI layout: `make image`. Nothing but Python's own library is needed.

The first half runs on any Python: it downloads what the lock files name (`debian`, `python_packages`, `kubectl`) and
lays the files of each layer out (`staging`, `sbom`). The second half, `assemble`, runs on the image's own Python: it
compiles, packs and compresses, so that the digest does not depend on the Python and zlib of the machine that builds.
`layout` writes the result. `lock` renews the list of Debian's packages. Begin with `build.py`.
"""
