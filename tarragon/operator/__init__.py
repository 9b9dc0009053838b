"""The program that keeps jobs: caches in, decisions of `plan` and `scheduling`, writes out. All I/O is here."""
