"""What to type instead of the commands of other tools, and of misspelled commands."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from types import MappingProxyType

_USES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "`tarragon list`": ("ls", "ps", "status", "job", "jobs", "queue", "squeue", "show"),
        "`tarragon list --watch`, or `tarragon top`": ("watch",),
        "`tarragon top`": ("ui", "dashboard", "htop"),
        "`tarragon run FILE`": ("start", "train", "launch", "sbatch", "srun"),
        "`tarragon submit FILE`": ("create", "apply", "deploy"),
        "`tarragon delete JOB`": ("rm", "remove", "cancel", "abort", "scancel", "del"),
        "`tarragon delete JOB`, or `tarragon suspend JOB` to continue it later": ("kill", "terminate"),
        "`tarragon delete JOB` for a job, `tarragon down` for the local cluster": ("stop",),
        "`tarragon suspend JOB`": ("pause",),
        "`tarragon resume JOB`": ("continue", "unpause"),
        "`tarragon scale JOB worker=4`": ("resize",),
        "`tarragon scale JOB worker=4`, or `kubectl edit` for other fields": ("edit", "patch", "set"),
        "`tarragon logs JOB`": ("log", "output"),
        "`tarragon logs -f JOB`": ("tail", "follow", "attach"),
        "`tarragon describe JOB`": ("info", "inspect", "events"),
        "`tarragon why JOB`": ("explain", "reason"),
        "`tarragon check`": ("doctor", "diagnose", "preflight", "cluster-info"),
        "`tarragon top`, or `kubectl get nodes`": ("nodes", "sinfo"),
        "`kubectl get pods`": ("pod", "pods"),
        "`tarragon convert FILE`": ("migrate",),
        "`tarragon validate FILE`": ("lint",),
        "`tarragon docs`": ("man",),
    }
)
_INSIDE_PODS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("exec", "shell", "bash", "ssh"), "kubectl exec -it JOB-worker-0 -- sh"),
        "cp": "kubectl cp JOB-worker-0:/data/model .",
        "port-forward": "kubectl port-forward JOB-worker-0 6006",
    }
)
"""What kubectl does and Tarragon does not repeat. A pod has the name of its job and of its replica."""

_FILES = (".py", ".sh", ".yaml", ".yml")
"""The endings of what `run` takes."""
_SURPLUS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("list", "top"), "`get {surplus}` shows one job, `describe {surplus}` all about it"),
        "logs": "the logs of one replica: `logs {job} --replica {surplus}`",
    }
)
"""What to type instead, by the command that takes no more arguments."""
FOREIGN_NAMES: Mapping[str, str] = MappingProxyType({name: use for use, names in _USES.items() for name in names})
"""What to type instead, by the name that another tool, such as kubectl, docker, argo or Slurm, uses."""


def meant_command(name: str, commands: Collection[str], *, is_local: bool) -> str:
    """Returns what to type instead of an unknown command, as the end of a sentence; empty if that is unknown."""
    word = name.lower()
    if word in commands:
        return f"did you mean `{word}`?"
    if word in FOREIGN_NAMES:
        return f"type {FOREIGN_NAMES[word]}"
    if word.endswith(_FILES):
        return f"type `tarragon run {name}`"
    if word in _INSIDE_PODS:
        kubeconfig = "KUBECONFIG=$(tarragon kubeconfig) " if is_local else ""
        return f"type `{kubeconfig}{_INSIDE_PODS[word]}`"
    near = difflib.get_close_matches(word, [*commands, *FOREIGN_NAMES], n=1, cutoff=0.7)
    begun = [each for each in commands if len(word) > 1 and each.startswith(word)]
    meant = begun if len(begun) == 1 else near
    if not meant:
        return ""
    return f"did you mean `{meant[0]}`?" if meant[0] in commands else f"type {FOREIGN_NAMES[meant[0]]}"


def is_surplus_understood(command: str) -> bool:
    """Whether `meant_argument` knows what one argument too many of the command means."""
    return command in _SURPLUS


def meant_argument(command: str, surplus: str, job: str) -> str:
    """Returns what to type instead of a command with one argument too many. `job` is its JOB, if it takes one."""
    return _SURPLUS[command].format(surplus=surplus, job=job)
