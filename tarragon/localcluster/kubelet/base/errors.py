"""Errors that keep a container from starting for now, with the reason and message for its status."""

from __future__ import annotations


class CannotStart(Exception):
    """The container cannot start; the start is retried, as what is missing may appear.

    `reason` is the waiting reason in the container's status.
    """

    def __init__(self, message: str, *, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


class CannotMount(CannotStart):
    """A volume cannot be mounted. As in Kubernetes, the container stays in ContainerCreating and an event says why."""

    def __init__(self, volume: str, message: str) -> None:
        super().__init__(f'MountVolume.SetUp failed for volume "{volume}" : {message}', reason="ContainerCreating")
        self.volume = volume
