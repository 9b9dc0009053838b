"""A program as images of 2018 had it."""

from __future__ import annotations
