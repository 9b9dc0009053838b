"""Reads FILE: a path, `-` for standard input, or a URL, up to a size limit."""

from __future__ import annotations

import difflib
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
_ENDINGS = (".py", ".sh", ".yaml", ".yml", ".json")
"""Of the files that commands take, scripts first."""
_SIMILAR = 0.7
"""The similarity, without endings, from which a file may be the one that was meant."""


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


def similar_file(missing: Path) -> Path | None:
    """Returns the file beside it that was probably meant: of that name with an ending, or of nearly that name."""
    try:
        beside = sorted(each for each in missing.parent.iterdir() if each.suffix in _ENDINGS)
    except OSError:
        return None
    with_ending = [missing.parent / f"{missing.name}{ending}" for ending in _ENDINGS]
    same_ending = {each.stem: each for each in beside if missing.suffix in {each.suffix, ""}}
    near = difflib.get_close_matches(missing.stem, same_ending, n=1, cutoff=_SIMILAR)
    return next((each for each in with_ending if each in beside), same_ending[near[0]] if near else None)


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
        similar = similar_file(Path(name))
        remedy = f"did you mean {similar}?" if similar else ""
        return UnreadableFile(f"file {name} not found", why=f"the current folder is {Path.cwd()}", remedy=remedy)
    if error.errno == errno.EISDIR:
        return UnreadableFile(f"{name} is a folder", remedy="use one of the files in it")
    return UnreadableFile(f"can't read {name}", why=error.strerror or str(error))
