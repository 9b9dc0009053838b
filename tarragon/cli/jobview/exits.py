"""What a container's exit code means, in words for users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tarragon.job.exit_codes import CRASH_SIGNALS, ExitClass, ExitCodeTable
from tarragon.job.model import RestartPolicy

FIRST_SIGNAL = 128
USER_RETRYABLE = 138

_SIGNALS = MappingProxyType(
    {
        1: ("SIGHUP", "the terminal was closed"),
        2: ("SIGINT", "interrupted"),
        3: ("SIGQUIT", "asked to quit with a core dump"),
        4: ("SIGILL", "an illegal instruction; was the program built for another processor?"),
        6: ("SIGABRT", "the program aborted: a failed assertion, or an error in C++ code"),
        7: ("SIGBUS", "a bad memory access; often a full /dev/shm or a full disk"),
        8: ("SIGFPE", "a bad arithmetic operation"),
        9: ("SIGKILL", "out of memory, kill -9, or the grace period expired"),
        10: ("SIGUSR1", "the program asked to be restarted"),
        11: ("SIGSEGV", "a bad memory access in native code"),
        13: ("SIGPIPE", "it wrote to a closed pipe or connection"),
        14: ("SIGALRM", "a timer of the program expired"),
        15: ("SIGTERM", "asked to terminate"),
        24: ("SIGXCPU", "the CPU time limit was exceeded"),
        25: ("SIGXFSZ", "the file size limit was exceeded"),
    }
)

_CRASHES = frozenset({*CRASH_SIGNALS, FIRST_SIGNAL + 6})
_FAULTHANDLER = "Fatal Python error"
"""Begins what Python's faulthandler prints."""

_WORDS = MappingProxyType(
    {
        0: "completed successfully",
        1: "an error in the program; see its last log lines",
        2: "bad arguments, or a file that python or the shell could not open",
        126: "the command can't be executed: missing permission, or not a program",
        127: "the command was not found",
        128: "the program exited with an invalid exit code",
    }
)
_USER_RETRYABLE = "user-retryable"
_CLASSES = frozenset({*(each.value for each in ExitClass), _USER_RETRYABLE})
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})


_NEVER_STARTED = MappingProxyType(
    {
        "ImagePullBackOff": "its node could not pull its image",
        "ErrImageNeverPull": "its image is not on its node, and its imagePullPolicy forbids pulling it",
        "InvalidImageName": "the name of its image is invalid",
        "CreateContainerConfigError": "a ConfigMap or Secret that its container uses is missing",
        "CreateContainerError": "its node could not create its container",
        "RunContainerError": "its node could not start its container",
        "ContainerCreating": "its time limit expired before its image was pulled",
        "PodInitializing": "its time limit expired before its init containers had completed",
        "PodNotPrepared": "its node could not prepare its volumes or its network",
        "PodNotTaken": "the kubelet of its node did not start it",
        "NotScheduled": "no scheduler tried to place it",
        "SchedulingGated": "its scheduling gates were never removed",
        "Unschedulable": "it fitted on no node",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitMeaning:
    """What an exit code means.

    `kind` is one of clean, permanent, retryable, user-retryable, out of memory, evicted, never started, lost.
    """

    text: str
    kind: str
    is_crash: bool = False
    """Whether a fault of the program's own ended it, in native code, as it would after a restart."""


def explain_exit(code: int | None, reason: str, table: ExitCodeTable) -> ExitMeaning:
    """Explains how a replica ended.

    `reason` is that of the container (OOMKilled) or of the pod (Evicted). The code is None if the end was not observed.
    """
    if reason == "OOMKilled":
        return ExitMeaning(
            text="out of memory: it used more than its limit, or than its node has", kind="out of memory"
        )
    if reason in {"Evicted", "Preempted", "Preempting"}:
        return ExitMeaning(text="evicted from its node, or preempted by another pod", kind="evicted")
    if reason in _NOT_STARTED and code is not None:
        return ExitMeaning(text="its command could not be started", kind=_kind(code, table))
    if code is None and reason in _NEVER_STARTED:
        return ExitMeaning(text=_NEVER_STARTED[reason], kind="never started")
    if code is None:
        return ExitMeaning(text="its end was not observed: its node or kubelet went away", kind="lost")
    return ExitMeaning(text=code_text(code), kind=_kind(code, table), is_crash=code in _CRASHES)


def end_text(code: int | None, meaning: ExitMeaning, policy: RestartPolicy | None) -> str:
    """`exit code 1, permanent: an error in the program`. The class of the code matters under ExitCode only."""
    is_shown = policy is RestartPolicy.EXIT_CODE or meaning.kind not in _CLASSES
    return f"{exit_text(code)}{f', {meaning.kind}' if is_shown else ''}: {meaning.text}"


def is_restart_forbidden(reason: ExitMeaning, policy: RestartPolicy | None) -> bool:
    """Whether a restart could have helped, but the restart policy forbids it."""
    could_help = reason.kind in {ExitClass.RETRYABLE.value, _USER_RETRYABLE} and not reason.is_crash
    return could_help and policy is RestartPolicy.NEVER


def restart_forbidden_text(helpful: RestartPolicy, field_path: str) -> str:
    """Says that the restart policy Never is the reason, and which one restarts such a replica.

    `field_path` is where the policy is in the job's manifest; empty if that is not known.
    """
    setting = f": --set {field_path}={helpful}, or this field in the manifest" if field_path else ""
    return f"It was not restarted because its restartPolicy is Never; {helpful} restarts after such an end{setting}."


def crash_advice(meaning: ExitMeaning, lines: Sequence[str]) -> str:
    """Says how to see where the program crashed; empty if it did not, or if its last lines show that."""
    if not meaning.is_crash or any(_FAULTHANDLER in line for line in lines):
        return ""
    return "Started with -e PYTHONFAULTHANDLER=1, Python prints its stack at such an end."


def exit_text(code: int | None) -> str:
    """`exit code 1`, `killed (SIGKILL, 137)`."""
    if code is None:
        return "no exit code"
    signal = _SIGNALS.get(code - FIRST_SIGNAL)
    return f"killed ({signal[0]}, {code})" if signal is not None and code != USER_RETRYABLE else f"exit code {code}"


def past_end_text(code: int | None, reason: str) -> str:
    """What follows the name of a replica: `failed with exit code 1`, `was killed (SIGKILL, 137)`; empty if unknown."""
    if reason == "OOMKilled":
        return "ran out of memory"
    if code is None:
        return f"was disrupted ({reason})" if reason else ""
    known = exit_text(code)
    return f"was {known}" if known.startswith("killed") else f"{'failed' if code else 'ended'} with {known}"


def code_text(code: int) -> str:
    """Describes any exit code. `exit_text`, which precedes it, names the usual signals: `out of memory, kill -9 …`."""
    if code in _WORDS:
        return _WORDS[code]
    if code > FIRST_SIGNAL:
        name, description = _SIGNALS.get(code - FIRST_SIGNAL, (f"signal {code - FIRST_SIGNAL}", ""))
        is_named = exit_text(code).startswith("killed")
        return description if is_named else f"ended by {name}: {description}" if description else f"ended by {name}"
    return "a code specific to the program; see its documentation or its last log lines"


def _kind(code: int, table: ExitCodeTable) -> str:
    if code == USER_RETRYABLE and table(code) is ExitClass.RETRYABLE:
        return _USER_RETRYABLE
    return table(code).value
