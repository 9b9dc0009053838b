"""Tarragon trains distributed models on Kubernetes, or on this machine alone."""

from __future__ import annotations

from tarragon.reporting import report

__all__ = ["__version__", "report"]

__version__ = "0.1.0"
