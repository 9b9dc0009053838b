"""The checks of `tarragon check`: of this machine (`machine`), or of a cluster (`cluster`, which calls the others)."""
