"""Runs a command and turns each line that it says into a line of JSON that tells which replica said it.

    json_logs.py COMMAND [ARGUMENT...]      without a command: does nothing, which shows that this Python can run it

The command gets stdin, all signals and its own exit code as if nobody stood in between: this program ends as it does,
128 + n where a signal ended it. stdout stays stdout, and stderr stderr. Whatever goes wrong here, the command runs and
its lines come through, plain if need be. For Python 2.7 and from 3.4 on; imports a little of the standard library.

TARRAGON_LOG_FIELDS is the JSON object that each line gets. TARRAGON_LOG_ENDING is where the last words of a command
that fails are left, as Kubernetes leaves the last lines of a log. TARRAGON_LOG_STREAMS tells the command's processes
which pipes we read: only into those sitecustomize.py writes JSON.
"""

import errno
import fcntl
import json
import os
import select
import signal
import sys

from json_lines import Splitter, Teller  # type: ignore[import-not-found] # beside this file where it runs

FIELDS = "TARRAGON_LOG_FIELDS"
ENDING = "TARRAGON_LOG_ENDING"
STREAMS = "TARRAGON_LOG_STREAMS"
PROCESS_NODE = "TARRAGON_CONTAINER_ID"  # set in containers that are none, but processes of a machine

READ = 16 * 1024
REST = 1 << 20  # a pipe holds no more: what a program can have left behind when it ends
NOT_FOUND, NOT_EXECUTABLE = 127, 126
NOT_OURS = frozenset(
    ["SIGCHLD", "SIGKILL", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGPIPE", "SIGXFSZ"]
    + ["SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"]
)


# ------------------------------------------------------------------------------------------------------------ processes


class Child(object):
    """The command, from the moment before it is started. Signals that come too early wait for it."""

    def __init__(self):
        self.pid = 0
        self.early = []
        self.code = None  # of its end, as containers tell it
        self.handlers = {}
        self.woken, self.waker = pipe()
        for end in (self.woken, self.waker):
            fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_NONBLOCK)

    def hold_signals(self):
        skipped = set(getattr(signal, name) for name in NOT_OURS if hasattr(signal, name))
        for number in range(1, signal.NSIG):
            if number not in skipped:
                try:
                    self.handlers[number] = signal.signal(number, self.forward)
                except (ValueError, OSError, RuntimeError):  # the C library keeps some for itself
                    continue
        self.handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.waker)

    def release_signals(self):
        """In the child: as it was before."""
        signal.set_wakeup_fd(-1)
        for number, handler in self.handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def forward(self, number, _):
        if not self.pid:
            self.early.append(number)
            return
        # A node of processes signals a container's whole group, and the command has one of its own here.
        send = os.killpg if PROCESS_NODE in os.environ else os.kill
        try:
            send(self.pid, number)
        except OSError:  # it has just ended
            pass

    def started(self, pid):
        self.pid = pid
        while self.early:
            self.forward(self.early.pop(0), None)

    def reap(self):
        """Orphans come to the first process of a container, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except OSError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def pipe():
    """Not passed on to other programs, in Python 2 neither."""
    ends = os.pipe()
    for end in ends:
        fcntl.fcntl(end, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    return ends


def retried(call, *arguments):
    """Python 2 does not go on after a signal."""
    while True:
        try:
            return call(*arguments)
        except (OSError, IOError, select.error) as error:
            if error.args[0] != errno.EINTR:
                raise


def identity(descriptor):
    found = os.fstat(descriptor)
    return "%d:%d" % (found.st_dev, found.st_ino)


def fork(child, streams):
    """In the parent the ends to read, by stream; in the child None, and our ends are its streams."""
    ends = dict((stream, pipe()) for stream in streams)
    ready, begun = pipe()
    child.hold_signals()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        child.release_signals()
        for stream, (ours, its) in ends.items():
            os.dup2(its, stream)
            os.close(ours)
            os.close(its)
        os.close(ready)
        os.close(child.woken)
        os.close(child.waker)
        os.environ[STREAMS] = ",".join(identity(stream) for stream in streams)
        return None, begun
    os.close(begun)
    for _, its in ends.values():
        os.close(its)
    return dict((ours, stream) for stream, (ours, _) in ends.items()), (pid, ready)


# ------------------------------------------------------------------------------------------------------------- the pump


class Pump(object):
    """Copies the program's output in order. While the log is full the program waits, so nothing is lost."""

    def __init__(self, child, teller, ends):
        self.child = child
        self.teller = teller
        self.ends = ends
        self.splitters = dict((end, Splitter()) for end in ends)

    def run(self):
        """Until the command has ended; what it leaves behind may still write, and is not waited for."""
        while self.child.code is None:
            ready = retried(select.select, [self.child.woken] + list(self.ends), [], [])[0]
            if self.child.woken in ready:
                os.read(self.child.woken, READ)
            for end in ready:
                if end in self.ends:
                    self.move(end)
            self.child.reap()
        for end in list(self.ends):
            left = REST
            while left > 0 and end in self.ends and select.select([end], [], [], 0)[0]:
                left -= self.move(end)
        for end, stream in self.ends.items():
            self.tell(self.splitters[end].finish(), stream)

    def move(self, end):
        """How many bytes there were."""
        data = retried(os.read, end, READ)
        if data:
            lines = self.splitters[end].feed(data)
        else:
            lines = self.splitters[end].finish()
        is_taken = self.tell(lines, self.ends[end])
        if not data or not is_taken:
            os.close(end)  # Nobody reads the log any more: the command meets that as it would alone.
            del self.ends[end]
        return len(data)

    def tell(self, lines, stream):
        rendered = []
        for line in lines:
            try:
                rendered.append(self.teller.line(line, stream))
            except Exception:  # better plain than not at all
                rendered.append(line + b"\n")
        return write(stream, b"".join(rendered))


def write(descriptor, data):
    """Whether all was taken."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except (OSError, IOError) as error:
            if error.errno == errno.EAGAIN:
                retried(select.select, [], [descriptor], [])
            elif error.errno != errno.EINTR:
                return False
    return True


def leave_last_words(teller):
    """Unless the command has left a message of its own."""
    place = os.environ.get(ENDING)
    try:
        if place and teller.last and not (os.path.exists(place) and os.path.getsize(place)):
            with open(place, "ab") as file:
                file.write(teller.last_words())
    except (OSError, IOError):  # then the end of the log has to do
        pass


def attend(child, ends):
    """The child's exit code, when it has ended."""
    try:
        teller = Teller(json.loads(os.environ.get(FIELDS, "{}")))
    except Exception:
        teller = Teller({})
    Pump(child, teller, ends).run()
    if child.code != 0:
        leave_last_words(teller)
    return child.code


def follow(child, ends, rest):
    """In the parent: never returns, whatever happens."""
    code = NOT_EXECUTABLE
    try:
        pid, ready = rest
        retried(os.read, ready, 1)  # its other end is closed when the child is on its way
        child.started(pid)
        code = attend(child, ends)
    finally:
        os._exit(code)


def take_over(streams):
    """From here on a child goes on with the program, and we attend to that. Also of use to one that has just begun."""
    child = Child()
    try:
        ends, rest = fork(child, streams)
    except Exception:
        child.release_signals()
        raise
    if ends is not None:
        follow(child, ends, rest)
    os.close(rest)


def execute(command):
    """Become the command."""
    here = os.path.dirname(os.path.abspath(__file__))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = here + os.pathsep + before if before else here
    for number in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and what is ignored stays so
    try:
        os.execvp(command[0], command)
    except OSError as error:
        is_missing = error.args[0] == errno.ENOENT
        said = 'ERROR: exec: "%s": %s\n' % (command[0], os.strerror(error.args[0]).lower())
        write(2, said.encode("utf-8", "replace"))
        os._exit(NOT_FOUND if is_missing else NOT_EXECUTABLE)
    finally:
        os._exit(NOT_EXECUTABLE)


def main(command):
    if not command:
        return
    try:
        take_over((1, 2))
    except Exception:  # no more processes, or no more files: then plain
        pass
    execute(command)


if __name__ == "__main__":
    main(sys.argv[1:])
