"""Recognises a program that failed because another replica had gone: a consequence, not the cause of a failure."""

from __future__ import annotations

import re
from functools import lru_cache

from tarragon.job.termination_message import telling_line

_LOST_PEER = re.compile(
    r"Connection(?:Reset|Refused|Aborted)Error|BrokenPipeError"
    r"|(?i:connection (?:reset|refused|aborted|closed)|broken pipe|socket closed|closed the connection)"
    # TensorFlow, JAX and gRPC
    r"|unexpectedly tried to connect (?:with a different|while it is already)"
    r"|UnavailableError|\bUNAVAILABLE: |failed to connect to all addresses|Collective ops is aborted"
    r"|(?i:heartbeat (?:timeout|timed out|failed)|missed heartbeats?)"
    r"|\bDEADLINE_EXCEEDED: Barrier timed out|Gloo.*(?:timed out|timeout)|Read timeout"
)


@lru_cache(maxsize=2048)
def has_lost_peer(message: str) -> bool:
    """Whether the output of a failed program ends with a lost connection.

    That takes a third of a millisecond, and a large gang is judged several times, so the answers are kept.
    """
    return _LOST_PEER.search(telling_line(message)) is not None
