"""Why a container cannot be started for now, in the words that its status will have."""

from __future__ import annotations


class CannotStart(Exception):
    """`reason` is the waiting reason of the container's status. It is tried again: what is missing may come."""

    def __init__(self, message: str, *, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


class CannotMount(CannotStart):
    """A volume is not there. Kubernetes leaves the container in creation and tells the rest in an event."""

    def __init__(self, volume: str, message: str) -> None:
        super().__init__(f'MountVolume.SetUp failed for volume "{volume}" : {message}', reason="ContainerCreating")
        self.volume = volume
