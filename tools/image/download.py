"""Downloads that are checked against a hash, and kept in a folder for the next build."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tools.image.errors import DownloadError

TIMEOUT_SECONDS = 60.0


def fetch(urls: Sequence[str], sha256: str, cache: Path) -> Path:
    """Return the file with this hash, from the cache or from the first server that has it."""
    kept = cache / sha256
    if kept.exists() and hashlib.sha256(kept.read_bytes()).hexdigest() == sha256:
        return kept
    faults = []
    for url in urls:
        try:
            content = read(url)
        except OSError as error:
            faults.append(f"{url}: {error}")
            continue
        if hashlib.sha256(content).hexdigest() == sha256:
            cache.mkdir(parents=True, exist_ok=True)
            # Builds may run side by side.
            part = cache / f"{sha256}.{os.getpid()}"
            part.write_bytes(content)
            part.replace(kept)
            return kept
        faults.append(f"{url}: the file is not the one with SHA-256 {sha256}")
    raise DownloadError("no server has the file that the image needs:\n  " + "\n  ".join(faults))


def read(url: str) -> bytes:
    """Return what a server has there. Raises OSError."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310  # of this package's own tables
        content: bytes = answer.read()
        return content
