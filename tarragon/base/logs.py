"""What the programs write about themselves: one line a fact, for a person on a terminal, as JSON for a collector."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Literal, TextIO

import structlog
from structlog.typing import Processor

Form = Literal["json", "text"]


def configure(form: Form, level: str = "info", stream: TextIO = sys.stderr) -> None:
    """Once, at the start of a program. Libraries' own records (aiohttp, asyncio) come through the same door."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: Sequence[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: Sequence[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if form == "json"
        else [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(),
                # Without the values of local variables: tokens are among them.
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    )
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer], foreign_pre_chain=shared
        )
    )
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)
