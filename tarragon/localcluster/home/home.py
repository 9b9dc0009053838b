"""`Home`: the folder that holds all state of one embedded cluster, and the checks that it can be used."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tarragon.base.errors import TarragonError

MIN_FREE_BYTES = 32 * 2**20
"""A server does not start with less free disk space, because the store would fill the disk in the middle of a job."""

MAX_PATH_BYTES = 200
"""The maximal length of the folder's path in bytes. Paths of pods below it have names of up to 253 characters."""


@dataclass(frozen=True, slots=True)
class Home:
    """A home folder. Each home is a cluster of its own. Only its owner can read the files in it."""

    folder: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Home:
        """The folder in TARRAGON_HOME, by default ~/.tarragon."""
        named = environment.get("TARRAGON_HOME")
        folder = Path(named).expanduser() if named else Path(environment.get("HOME") or Path.home()) / ".tarragon"
        return cls(folder.absolute())

    @property
    def store_path(self) -> Path:
        return self.folder / "state.db"

    @property
    def nodes(self) -> Path:
        """A folder that has a folder for each node, with its pods, their logs and volumes."""
        return self.folder / "node"

    @property
    def server(self) -> Path:
        """The address and process of the running server; absent while none runs."""
        return self.folder / "server.json"

    @property
    def port(self) -> Path:
        """The port of the last server. The next server uses it again, so that existing kubeconfigs stay valid."""
        return self.folder / "port"

    @property
    def progress_port(self) -> Path:
        """The port at which programs last reported progress. Those that still run know no other."""
        return self.folder / "progress-port"

    @property
    def lock(self) -> Path:
        """Locked while a server runs."""
        return self.folder / "lock"

    @property
    def start_lock(self) -> Path:
        """Locked by a client while it starts a server."""
        return self.folder / "start.lock"

    @property
    def certificates_lock(self) -> Path:
        """Locked while certificates are issued."""
        return self.folder / "certificates.lock"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def token(self) -> Path:
        return self.folder / "token"

    @property
    def account_key(self) -> Path:
        """The key that signs the tokens of service accounts."""
        return self.folder / "sa.key"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def log(self) -> Path:
        return self.folder / "daemon.log"

    @property
    def images(self) -> Path:
        """The image map: which environment each image name stands for. The user writes it, the kubelet reads it."""
        return self.folder / "images.yaml"

    def prepare(self) -> None:
        """Create the folder and check that it can be used, before a server starts. Raises TarragonError."""
        if len(os.fsencode(self.folder)) > MAX_PATH_BYTES:
            raise TarragonError(
                f"the path of the home is too long: {self.folder}",
                why=f"paths of pods below it are long, so it may have at most {MAX_PATH_BYTES} bytes",
                remedy="set TARRAGON_HOME to a shorter path",
            )
        from tarragon.localcluster.storage.database import reject_network_file_system  # noqa: PLC0415 - imports SQLite

        reject_network_file_system(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._check_owner()
            self._check_space()
            write_private_file(self.folder / "probe", b"")
            (self.folder / "probe").unlink(missing_ok=True)  # Another process may do the same check.
        except OSError as error:
            raise unusable_home_error(self.folder, error) from error

    def read_token(self) -> str:
        """The bearer token of this cluster, created at the first call. It never changes, so kubeconfigs stay valid."""
        with suppress(FileNotFoundError):
            token = self.token.read_text().strip()
            if token:
                return token
        token = secrets.token_urlsafe(32)
        write_private_file(self.token, token.encode())
        return token

    def _check_owner(self) -> None:
        if self.folder.stat().st_uid not in {os.getuid(), 0}:
            raise TarragonError(
                f"{self.folder} belongs to another user",
                why="the owner of that folder could run programs as you",
                remedy="set TARRAGON_HOME to a folder of your own",
            )

    def _check_space(self) -> None:
        space = os.statvfs(self.folder)
        if space.f_bavail * space.f_frsize < MIN_FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))


def create_private_folder(folder: Path) -> None:
    """Create the folder and its missing parents with mode 0700. Raises OSError.

    Path.mkdir would create the parents with the mode of the umask, which usually lets everybody read them.
    """
    for missing in reversed([parent for parent in folder.parents if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def write_private_file(path: Path, data: bytes) -> None:
    """Write a file with mode 0600 atomically, even if the machine stops. Raises OSError."""
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


_REMEDIES: Mapping[int, tuple[str, str]] = {
    errno.ENOSPC: ("the disk is full", "free some space, or set TARRAGON_HOME to a folder on another disk"),
    errno.EDQUOT: ("your disk quota is used up", "delete something, or set TARRAGON_HOME to a folder on another disk"),
    errno.EROFS: ("the file system is read-only", "set TARRAGON_HOME to a folder that can be written"),
    errno.EACCES: ("you may not write there", "set TARRAGON_HOME to a folder of your own"),
    errno.EPERM: ("you may not write there", "set TARRAGON_HOME to a folder of your own"),
    errno.ENOTDIR: ("a part of that path is a file, not a folder", "set TARRAGON_HOME to a folder"),
    errno.EEXIST: ("that is a file, not a folder", "set TARRAGON_HOME to a folder"),
    errno.ENAMETOOLONG: ("the path is too long", "set TARRAGON_HOME to a shorter path"),
}


def unusable_home_error(folder: Path, error: OSError) -> TarragonError:
    """The error for users when the file system fails in a home."""
    why, remedy = _REMEDIES.get(error.errno or 0, (str(error), "set TARRAGON_HOME to a folder that can be written"))
    return TarragonError(f"can't keep the cluster's state in {folder}", why=why, remedy=remedy)
