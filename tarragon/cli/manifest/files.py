"""Reads FILE: a path, `-` for standard input, or a URL, up to a size limit."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import BinaryIO

from tarragon.base.errors import TarragonError
from tarragon.cli.options.notes import print_note

MAX_BYTES = 16 * 2**20
"""Bytes. Anything larger is not a manifest: etcd stores no object above 1.5 MB."""
TIMEOUT = 20.0
"""Seconds to wait for a web server to connect or to send more bytes."""

_URLS = ("http://", "https://")


class UnreadableFile(TarragonError):
    """FILE can't be read. Exit code 2: the argument is wrong, not the cluster."""

    exit_code = 2


def read_file(name: str) -> bytes:
    """Returns the content of FILE. Raises UnreadableFile."""
    if name == "-":
        if sys.stdin.isatty():
            print_note("Reading the manifest from standard input; press Ctrl-D to end it.")
        return _bounded(sys.stdin.buffer, "standard input")
    if name.startswith(_URLS):
        return _fetched(name)
    try:
        with Path(name).open("rb") as file:
            return _bounded(file, name)
    except OSError as error:
        raise _unreadable(name, error) from error


def display_name(name: str) -> str:
    """Returns FILE's name in messages."""
    return "standard input" if name == "-" else name


def _bounded(file: BinaryIO, name: str) -> bytes:
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UnreadableFile(f"{name} is too large", why=f"a manifest has at most {MAX_BYTES >> 20} MiB")
    return data


def _fetched(url: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(url, headers={"User-Agent": "tarragon"}), timeout=TIMEOUT) as answer:  # noqa: S310 - see read
            return _bounded(answer, url)
    except HTTPError as error:
        raise UnreadableFile(f"can't read {url}", why=f"the server answered {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise UnreadableFile(f"can't read {url}", why=str(why), remedy="download it and use the local file") from error


def _unreadable(name: str, error: OSError) -> UnreadableFile:
    if error.errno == errno.ENOENT:
        return UnreadableFile(f"file {name} not found", why=f"the current folder is {Path.cwd()}")
    if error.errno == errno.EISDIR:
        return UnreadableFile(f"{name} is a folder", remedy="use one of the files in it")
    return UnreadableFile(f"can't read {name}", why=error.strerror or str(error))
