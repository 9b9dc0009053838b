"""`Home`: the folder that holds all state of one embedded cluster, and who may use it."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tarragon.base.errors import TarragonError
from tarragon.localcluster.storage.database import refuse_network_file_system

NEEDED_BYTES = 32 * 2**20
"""Below this much free space nothing is begun: a store that fills the disk in the middle of a job helps nobody."""

LONGEST_PATH = 200
"""Bytes of the folder's path. Pods have folders and files below it, some with names of 253 characters."""


@dataclass(frozen=True, slots=True)
class Home:
    """Two homes are two clusters. Everything in it is readable by its owner only."""

    folder: Path

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Home:
        """TARRAGON_HOME, else ~/.tarragon."""
        named = environment.get("TARRAGON_HOME")
        folder = Path(named).expanduser() if named else Path(environment.get("HOME") or Path.home()) / ".tarragon"
        return cls(folder.absolute())

    @property
    def store(self) -> Path:
        return self.folder / "state.db"

    @property
    def nodes(self) -> Path:
        """A folder for each node: its pods, their logs and volumes."""
        return self.folder / "node"

    @property
    def server(self) -> Path:
        """Who serves this cluster, while somebody does."""
        return self.folder / "server.json"

    @property
    def port(self) -> Path:
        """The port of the last server: the next one takes it again, so that kubeconfigs in use stay right."""
        return self.folder / "port"

    @property
    def lock(self) -> Path:
        """Held as long as a server lives."""
        return self.folder / "lock"

    @property
    def start_lock(self) -> Path:
        """Held by a client while it starts a server."""
        return self.folder / "start.lock"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def token(self) -> Path:
        return self.folder / "token"

    @property
    def account_key(self) -> Path:
        """Signs the tokens of service accounts."""
        return self.folder / "sa.key"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def log(self) -> Path:
        return self.folder / "daemon.log"

    @property
    def images(self) -> Path:
        """The image map: what each image name stands for. Written by hand, read by the kubelet."""
        return self.folder / "images.yaml"

    def prepare(self) -> None:
        """Make the folder and find out, before anything is begun, whether it can be used. Raises TarragonError."""
        if len(os.fsencode(self.folder)) > LONGEST_PATH:
            raise TarragonError(
                f"the path of the home is too long: {self.folder}",
                why=f"files of pods lie deep below it, and {LONGEST_PATH} bytes is where that begins to fail",
                remedy="set TARRAGON_HOME to a shorter path",
            )
        refuse_network_file_system(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._check_owner()
            self._check_space()
            write_private(self.folder / "probe", b"")
            (self.folder / "probe").unlink(missing_ok=True)  # Another process may be trying the same.
        except OSError as error:
            raise unusable(self.folder, error) from error

    def read_token(self) -> str:
        """The bearer token of this cluster; made at the first call. It stays the same, so that kubeconfigs do, too."""
        with suppress(FileNotFoundError):
            token = self.token.read_text().strip()
            if token:
                return token
        token = secrets.token_urlsafe(32)
        write_private(self.token, token.encode())
        return token

    def _check_owner(self) -> None:
        if self.folder.stat().st_uid not in {os.getuid(), 0}:
            raise TarragonError(
                f"{self.folder} belongs to another user",
                why="whoever owns the home of a cluster can run programs in its name",
                remedy="set TARRAGON_HOME to a folder of your own",
            )

    def _check_space(self) -> None:
        space = os.statvfs(self.folder)
        if space.f_bavail * space.f_frsize < NEEDED_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))


def make_private(folder: Path) -> None:
    """Make the folder, and each folder above it that is missing, for its owner alone. Raises OSError.

    Path.mkdir would make those above it with the mode of the umask: mostly for everybody to read.
    """
    for missing in reversed([above for above in folder.parents if not above.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Whole or not at all, even if the machine stops, and never readable by others. Raises OSError."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


_WORDS: Mapping[int, tuple[str, str]] = {
    errno.ENOSPC: ("the disk is full", "free some space, or set TARRAGON_HOME to a folder on another disk"),
    errno.EDQUOT: ("your disk quota is used up", "delete something, or set TARRAGON_HOME to a folder on another disk"),
    errno.EROFS: ("the file system is read-only", "set TARRAGON_HOME to a folder that can be written"),
    errno.EACCES: ("you may not write there", "set TARRAGON_HOME to a folder of your own"),
    errno.EPERM: ("you may not write there", "set TARRAGON_HOME to a folder of your own"),
    errno.ENOTDIR: ("a part of that path is a file, not a folder", "set TARRAGON_HOME to a folder"),
    errno.EEXIST: ("that is a file, not a folder", "set TARRAGON_HOME to a folder"),
    errno.ENAMETOOLONG: ("the path is too long", "set TARRAGON_HOME to a shorter path"),
}


def unusable(folder: Path, error: OSError) -> TarragonError:
    """The words for what the file system said of a home."""
    why, remedy = _WORDS.get(error.errno or 0, (str(error), "set TARRAGON_HOME to a folder that can be written"))
    return TarragonError(f"can't keep the cluster's state in {folder}", why=why, remedy=remedy)
