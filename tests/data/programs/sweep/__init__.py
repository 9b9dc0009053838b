"""What the image of a sweep had in it."""

from __future__ import annotations
