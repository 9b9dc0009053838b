"""Converts TFJobs from any generation of the API to any other, and reports everything that is lost."""

from __future__ import annotations
