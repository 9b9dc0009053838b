"""TFJobs from any generation of the API to any other; nothing is lost unnamed."""

from __future__ import annotations
