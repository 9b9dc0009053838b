"""What an exit code says to a person: who ended the program, and how."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from tarragon.job.exitcode import ExitClass, ExitCodeTable
from tarragon.job.model import RestartPolicy

FIRST_SIGNAL = 128
USER_RETRYABLE = 138

_SIGNALS = MappingProxyType(
    {
        1: ("SIGHUP", "its terminal was closed"),
        2: ("SIGINT", "interrupted"),
        3: ("SIGQUIT", "told to quit with a core dump"),
        4: ("SIGILL", "an instruction this processor does not have; was it built for another one?"),
        6: ("SIGABRT", "it gave up by itself: an assertion, or C++ code that met an error"),
        7: ("SIGBUS", "a bad memory access; often /dev/shm or a disk that is full"),
        8: ("SIGFPE", "a bad arithmetic operation"),
        9: ("SIGKILL", "killed from outside: out of memory, kill -9, or the grace period was over"),
        10: ("SIGUSR1", "it asked to be tried again"),
        11: ("SIGSEGV", "a bad memory access in native code"),
        13: ("SIGPIPE", "it wrote to something that had gone"),
        14: ("SIGALRM", "its own timer ended it"),
        15: ("SIGTERM", "told to end"),
        24: ("SIGXCPU", "the limit of CPU time was reached"),
        25: ("SIGXFSZ", "the limit of file size was reached"),
    }
)

_WORDS = MappingProxyType(
    {
        0: "ended well",
        1: "an error in the program; its last lines say which",
        2: "bad arguments, or a file that python or the shell could not open",
        126: "the command is there but can't be executed: permissions, or no program at all",
        127: "the command was not found",
        128: "the program ended with a code that is no code",
    }
)
NEVER_AGAIN = "It was not tried again: its restartPolicy is Never; ExitCode tries what is retryable again."
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})


_NEVER_STARTED = MappingProxyType(
    {
        "ImagePullBackOff": "its node could not get its image",
        "ErrImageNeverPull": "its image is not on its node, and must not be pulled",
        "InvalidImageName": "its image has no name that a node understands",
        "CreateContainerConfigError": "something that its environment is made of is missing",
        "CreateContainerError": "its node could not make its container",
        "RunContainerError": "its node could not start its container",
        "ContainerCreating": "its time was over before its image was there",
        "PodInitializing": "its time was over before its init containers had ended",
        "PodNotPrepared": "its node did not get its volumes and its network ready",
        "PodNotTaken": "the kubelet of its node did not begin with it",
        "NotScheduled": "no scheduler looked at it",
        "SchedulingGated": "its scheduling gates were never opened",
        "Unschedulable": "no node could take it",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """`kind` is one of clean, permanent, retryable, user-retryable, out of memory, evicted, never started, lost."""

    words: str
    kind: str


def meaning(code: int | None, reason: str, table: ExitCodeTable) -> Meaning:
    """`reason` is the container's (OOMKilled) or the pod's (Evicted); a code of None: nobody saw it end."""
    if reason == "OOMKilled":
        return Meaning(words="out of memory: it needed more than its limit, or than there is", kind="out of memory")
    if reason in {"Evicted", "Preempted", "Preempting"}:
        return Meaning(words="the node had to give its place to something else", kind="evicted")
    if reason in _NOT_STARTED and code is not None:
        return Meaning(words="its command could not be started", kind=_kind(code, table))
    if code is None and reason in _NEVER_STARTED:
        return Meaning(words=_NEVER_STARTED[reason], kind="never started")
    if code is None:
        return Meaning(words="nobody saw it end: its node or kubelet went away", kind="lost")
    return Meaning(words=words(code), kind=_kind(code, table))


def never_again(known: Meaning, policy: RestartPolicy) -> bool:
    """Whether trying again could have helped, and its restartPolicy forbids it."""
    return known.kind in {ExitClass.RETRYABLE.value, "user-retryable"} and policy is RestartPolicy.NEVER


def ended(code: int | None) -> str:
    """`exit code 1`, `killed (SIGKILL, 137)`."""
    if code is None:
        return "no exit code"
    signal = _SIGNALS.get(code - FIRST_SIGNAL)
    return f"killed ({signal[0]}, {code})" if signal is not None and code != USER_RETRYABLE else f"exit code {code}"


def words(code: int) -> str:
    """`ended by SIGKILL: killed from outside …`, for every code there is."""
    if code in _WORDS:
        return _WORDS[code]
    if code > FIRST_SIGNAL:
        name, story = _SIGNALS.get(code - FIRST_SIGNAL, (f"signal {code - FIRST_SIGNAL}", ""))
        return f"ended by {name}: {story}" if story else f"ended by {name}"
    return "a code of the program's own; its documentation or its last lines say which"


def _kind(code: int, table: ExitCodeTable) -> str:
    if code == USER_RETRYABLE and table(code) is ExitClass.RETRYABLE:
        return "user-retryable"
    return table(code).value
