"""Runs a command in another pod of this machine, as `ssh` and rsh agents do: without a server, a port or a key.

    ssh [OPTIONS OF SSH] [--container NAME] [USER@]HOST [COMMAND...]
    $TARRAGON_RSH [--container NAME] HOST COMMAND...

HOST is a pod of this home, by name or by host name: `pi-worker-0`, `pi-worker-0.pi`, `pi-worker-0.pi.NAMESPACE.svc`,
with or without a cluster domain. A name without a namespace is one of the agent's own. NAME is one of the pod's
containers; without it, the command runs in the first one. As with ssh, the words of the command are joined with spaces
and given to `/bin/sh -c`, and without a command, the shell reads stdin. The command has the environment and the working
directory of its container, and the agent's own stdin, stdout and stderr.

The exit code is the command's, 128+n after signal n, or 255 with a sentence on stderr when the command could not be
run to its end. The command and its descendants are killed when the agent dies. Of ssh's options, `-n` (no stdin) and
`-o ConnectionAttempts=N` (wait N-1 seconds for a pod that does not run yet) have a meaning; all others are accepted.
Under the name of `ssh`, the agent runs the next `ssh` on PATH for a host that is not of the cluster.

`TARRAGON_RSH` is set in all containers of process nodes, and nowhere else. A script that needs an rsh agent there and
kubectl elsewhere begins like this:

    [ -z "$TARRAGON_RSH" ] || exec "$TARRAGON_RSH" --container main "$@"

The kubelet compiles this program into the node's folder, so it uses only the standard library. A large job runs one
agent for each of its pods at the same time: `socket` and `json` would more than double their start of 12 ms.
"""

from __future__ import annotations

import _json
import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys
import time
from collections.abc import Iterator

GUESTS = "guests"
"""The socket in a container's folder: see shim/exec_server.py, which describes the protocol, too."""
FAILED = 255
"""The exit code of ssh for all errors that are its own."""
RETRY_SECONDS = 0.1
RECEIVE = 64 * 1024
OPEN_MPI_START = ' ess "env" '
"""In the command of a daemon of Open MPI, orted or prted, and of nothing else."""
VALUE_OPTIONS = "BbcDEeFIiJLlmOoPpQRSWw"
"""The options of ssh that have a value."""


class Failure(Exception):
    """The command could not be run to its end; the message is for the user."""


class NotRunning(Failure):
    """The host is unknown, or its container is not running: this may change."""


class UnknownHost(NotRunning):
    """No pod has this host name."""


class Arguments:
    """The command line, read as ssh does: options may follow the host, too."""

    def __init__(self, words: list[str]) -> None:
        self.host = ""
        self.container = ""
        self.attempts = 1
        self.has_stdin = True
        rest = self._options(list(words))
        if rest:
            self.host = rest[0].rpartition("@")[2]
            rest = self._options(rest[1:])
        self.command = " ".join(rest)

    def _options(self, words: list[str]) -> list[str]:
        """Read the options at the beginning; return the other words."""
        while words and words[0].startswith("-") and words[0] != "-":
            word = words.pop(0)
            if word == "--":
                return words
            if word.startswith("--container"):
                self.container = word.partition("=")[2] or (words.pop(0) if words else "")
            else:
                self._letters(word[1:], words)
        return words

    def _letters(self, letters: str, words: list[str]) -> None:
        for position, letter in enumerate(letters, 1):
            if letter in VALUE_OPTIONS:
                value = letters[position:] or (words.pop(0) if words else "")
                if letter == "o":
                    self._setting(value)
                return
            if letter in "nf":
                self.has_stdin = False

    def _setting(self, text: str) -> None:
        name, _, value = text.replace("=", " ", 1).strip().partition(" ")
        if name.lower() == "connectionattempts" and value.strip().isdigit():
            self.attempts = int(value)


def entry_names(host: str, namespace: str) -> Iterator[tuple[str, str]]:
    """The namespaces and names under which a host may be recorded, most likely ones first."""
    labels = host.lower().rstrip(".").split(".")
    if "/" in host or not all(labels):
        return
    full = [(labels[position - 1], labels[: position - 1]) for position in (2, 3) if labels[position:][:1] == ["svc"]]
    relative = full or [(namespace, labels), (labels[-1], labels[:-1])]
    for place, name in relative:
        if name:
            yield place, ".".join(name)
    for place, name in relative:
        if len(name) > 1:
            yield place, name[0]  # a pod behind a Service that does not give it a host name


class Host:
    """A pod: its folder, and the names of its containers. Raises UnknownHost."""

    def __init__(self, hosts: str, namespace: str, name: str) -> None:
        self.name = name
        for place, recorded in entry_names(name, namespace):
            try:
                with open(os.path.join(hosts, place, recorded), encoding="utf-8") as file:
                    self.folder, *self.containers = file.read().splitlines()
            except (OSError, ValueError):
                continue
            else:
                return
        raise UnknownHost(f"no pod with the host name {name} has started on this machine (namespace {namespace})")

    def connect(self, name: str) -> Connection:
        """Connect to the latest run of a container, by default the first one. Raises Failure."""
        name = name or self.containers[0]
        if name not in self.containers:
            raise Failure(f"{self.name} has no container {name}, only {', '.join(self.containers)}")
        runs = os.path.join(self.folder, "runs", name)
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            run = os.path.join(runs, str(max(int(number) for number in os.listdir(runs) if number.isdigit())))
            os.chdir(run)  # a socket's path is limited to about 100 bytes
            connection.connect(GUESTS)
        except (OSError, ValueError) as error:
            connection.close()
            raise NotRunning(f"the container {name} of {self.name} is not running") from error
        return Connection(connection, run)


class Connection:
    """A connection to the shim of a container; `run` is the folder of the container's run."""

    def __init__(self, connection: _socket.socket, run: str) -> None:
        self.run = run
        self._connection = connection

    def execute(self, words: list[str], streams: list[int]) -> int | None:
        """Run a command to its end; return its exit code, or None when its container has ended. Raises Failure."""
        text = ", ".join(map(_json.encode_basestring_ascii, words))
        request = f'{{"exec": [{text}], "tty": false}}\n'.encode()
        rights = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in streams)
        try:
            # An empty rest must not be sent: that fails after a short command, whose end closes the connection.
            sent = self._connection.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
            if rest := request[sent:]:
                self._connection.sendall(rest)
            return self._exit_code()
        except OSError:
            return None

    def _exit_code(self) -> int | None:
        received = b""
        while data := self._connection.recv(RECEIVE):
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                if line.startswith(b'{"code": '):
                    return int(line[len(b'{"code": ') : -1])
                if line.startswith(b'{"error": '):
                    raise Failure(_json.scanstring(line.decode(), len('{"error": "'))[0])
        return None


def connect(target: tuple[str, str], arguments: Arguments) -> Connection:
    """Connect to the container that the arguments name, with as many attempts as they want. Raises Failure."""
    deadline = time.monotonic() + arguments.attempts - 1
    while True:
        try:
            return Host(*target, arguments.host).connect(arguments.container)
        except NotRunning:
            if time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS)


def shell_words(command: str, host: str, run: str) -> list[str]:
    """The words of the process to start in the container of this run.

    The daemons of Open MPI tell each other apart by the host name of the machine, which all containers share: with two
    equal ones, mpirun 5 waits forever, and daemons of mpirun 4 share their session folder. No setting gives a daemon
    another name. But daemons that Slurm starts take theirs from a variable; apart from that and from their rank, which
    mpirun gives to each anyway, `ess env` and `ess slurm` are the same. Ranks of mpirun 4 do not take it over, and
    would share their files of shared memory.
    """
    if not command:
        return ["/bin/sh"]
    words = ["/bin/sh", "-c", command]
    if OPEN_MPI_START not in command:
        return words
    words[-1] = command.replace(OPEN_MPI_START, ' ess "slurm" ', 1)
    slurm = [f"SLURMD_NODENAME={host}", "SLURM_NODEID=0", "SLURM_JOBID=1", "SLURM_JOB_ID=1"]
    return ["env", *slurm, f"OMPI_MCA_btl_vader_backing_directory={run}", *words]


def own_streams(has_stdin: bool) -> list[int]:  # noqa: FBT001 - a fact
    return [_stream(0) if has_stdin else os.open(os.devnull, os.O_RDONLY), _stream(1), _stream(2)]


def _stream(number: int) -> int:
    try:
        os.fstat(number)
    except OSError:  # the agent was started with this stream closed
        return os.open(os.devnull, os.O_RDWR)
    return number


def next_ssh(own_folder: str) -> str | None:
    """The `ssh` that comes after the agent on PATH: the real one."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    if own_folder in folders:
        folders = folders[folders.index(own_folder) + 1 :]
    found = (os.path.join(folder, "ssh") for folder in folders if folder)
    return next((path for path in found if os.access(path, os.X_OK) and os.path.isfile(path)), None)


def is_cluster_name(host: str) -> bool:
    return "svc" in host.split(".")[1:]


def main(hosts: str, namespace: str, program: str, words: list[str]) -> int:
    """Run the agent; `program` is the path that it was called by."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    folder, name = os.path.split(program)
    arguments = Arguments(words)
    try:
        return execute((hosts, namespace), arguments)
    except Failure as failure:
        is_foreign = isinstance(failure, UnknownHost) and not is_cluster_name(arguments.host)
        real = next_ssh(folder) if name == "ssh" and is_foreign else None
        if real is not None:
            os.execv(real, [real, *words])  # noqa: S606 - there is no shell by design
        os.write(_stream(2), f"{name}: {failure}\n".encode(errors="replace"))
    return FAILED


def execute(target: tuple[str, str], arguments: Arguments) -> int:
    """Run the command that the arguments name to its end; return its exit code. Raises Failure."""
    if not arguments.host:
        raise UnknownHost("usage: ssh [--container NAME] HOST [COMMAND...]")
    connection = connect(target, arguments)
    words = shell_words(arguments.command, arguments.host, connection.run)
    code = connection.execute(words, own_streams(arguments.has_stdin))
    if code is None:
        raise Failure(f"the container of {arguments.host} ended while the command ran")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
