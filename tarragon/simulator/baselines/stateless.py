"""The part of a scheduler that learns nothing from what jobs do."""

from __future__ import annotations

from tarragon.simulator.engine import ActiveJob


class Stateless:
    def progressed(self, active: ActiveJob, seconds: float, part: float) -> None:
        """Nothing is learned of it."""

    def ended(self, active: ActiveJob) -> None:
        """Nothing is learned of it."""
