"""Recognises a program that failed because another replica had gone: a consequence, not the cause of a failure."""

from __future__ import annotations

import re

from tarragon.job.termination_message import telling_line

_LOST_PEER = re.compile(
    r"Connection(?:Reset|Refused|Aborted)Error|BrokenPipeError"
    r"|(?i:connection (?:reset|refused|aborted|closed)|broken pipe|socket closed|closed the connection)"
    # TensorFlow, JAX and gRPC
    r"|UnavailableError|\bUNAVAILABLE\b|failed to connect to all addresses|Collective ops is aborted"
    r"|(?i:heartbeat)"
)


def has_lost_peer(message: str) -> bool:
    """Whether the output of a failed program ends with a lost connection."""
    return _LOST_PEER.search(telling_line(message)) is not None
