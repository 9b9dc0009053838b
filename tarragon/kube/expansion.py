"""The other side of Kubernetes' expansion of $(NAME) in commands, arguments and values of variables."""

from __future__ import annotations

import re

_EXPANDED = re.compile(r"\$(?=[$(])")


def literal(text: str) -> str:
    """Returns what Kubernetes expands to this text: it would replace $(NAME), and $$ by $."""
    return _EXPANDED.sub("$$", text)
