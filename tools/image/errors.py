"""What a user of `make image` can do something about."""

from __future__ import annotations


class ImageError(Exception):
    """A build that can't go on: the message says what happened, why, and what to do."""


class DownloadError(ImageError):
    """A file that no server gave: without a network there is no image."""
