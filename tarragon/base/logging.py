"""Configures logging: readable text for a terminal, or JSON for a log collector."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal, TextIO

import structlog
from structlog.typing import Processor

from tarragon.base.escaping import STYLE_ESCAPE, escaping_stream

LogFormat = Literal["json", "text"]


def configure(form: LogFormat, level: str = "info", stream: TextIO = sys.stderr) -> None:
    """Configure logging; call it once, when a program starts. Logs of libraries (aiohttp, asyncio) are included."""
    stream = escaping_stream(stream)
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
            _Console(
                colors=stream.isatty(),
                # Without the values of local variables, because they may contain tokens.
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


class _Console(structlog.dev.ConsoleRenderer):
    """A console renderer whose styles pass an EscapingStream."""

    @classmethod
    def get_default_column_styles(cls, colors: bool, force_colors: bool = False) -> structlog.dev.ColumnStyles:  # noqa: FBT001, FBT002 - structlog's signature
        styles = super().get_default_column_styles(colors, force_colors)
        return structlog.dev.ColumnStyles(**{name: _unescaped(style) for name, style in asdict(styles).items()})

    @staticmethod
    def get_default_level_styles(colors: bool = True) -> dict[str, str]:  # noqa: FBT001, FBT002 - as above
        styles = structlog.dev.ConsoleRenderer.get_default_level_styles(colors)
        return {level: _unescaped(style) for level, style in styles.items()}


def _unescaped(style: str) -> str:
    return style.replace("\x1b", STYLE_ESCAPE)
