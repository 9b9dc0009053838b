"""What one reading of a container's usage says. Modules that read and that compute share it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReading:
    """A reading of one container: `cpu` in seconds since it started, `memory` in bytes.

    Pages shared by several processes count once on Linux, and once for each process elsewhere.
    """

    cpu: float
    memory: int
