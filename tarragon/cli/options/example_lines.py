"""The examples in the help of every command. They are read by people who would rather copy than read options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import click

EXAMPLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "run": (
            "tarragon run job.yaml",
            "tarragon run train.py --workers 4 --gpus 1 -- --epochs 3",
            "tarragon run job.yaml -e TOKEN --env-file .env --env-from secret/tracker",
            "tarragon run job.yaml --set spec.tfReplicaSpecs.Worker.replicas=4 --timeout 2h",
            "tarragon --context prod run --detach job.yaml",
        ),
        "submit": (
            "tarragon submit job.yaml",
            "tarragon submit --wait --timeout 2h job.yaml",
            "tarragon submit --dry-run=server -o yaml job.yaml",
        ),
        "init": ("tarragon init train.py --workers 4 --ps 1", "tarragon init -o - train.py -- --epochs 3"),
        "validate": ("tarragon validate job.yaml", "tarragon validate -R jobs/ -o json"),
        "list": (
            "tarragon list",
            "tarragon list -A -o wide --sort-by state",
            "tarragon list --state running,failed --watch",
        ),
        "top": ("tarragon top", "tarragon --context prod top -A"),
        "get": ("tarragon get digits", "tarragon get tfjob/digits -o yaml"),
        "describe": ("tarragon describe digits", "tarragon describe @latest -o json"),
        "why": ("tarragon why digits", "tarragon why @latest --what-if add-nodes=4xgpu-1"),
        "wait": (
            "tarragon wait digits --timeout 2h",
            "tarragon wait digits letters",
            "tarragon wait digits --for running --for failed",
        ),
        "logs": (
            "tarragon logs -f digits",
            "tarragon logs digits --replica worker-1 --tail 50",
            "tarragon logs digits --grep loss --since 10m",
        ),
        "suspend": ("tarragon suspend digits --wait", "tarragon suspend -l team=vision"),
        "resume": ("tarragon resume digits", "tarragon resume --all --wait --timeout 5m"),
        "scale": ("tarragon scale digits --workers 4", "tarragon scale digits --min 2 --max 8"),
        "delete": ("tarragon delete digits letters", "tarragon delete -l team=vision", "tarragon delete --all -y"),
        "up": (
            "tarragon up",
            "tarragon up --node name=a,cpu=8,memory=16Gi,nvidia.com/gpu=4 --node name=b,cpu=8,memory=16Gi",
        ),
        "down": ("tarragon down", "TARRAGON_HOME=/tmp/other tarragon down"),
        "kubeconfig": (
            "export KUBECONFIG=$(tarragon kubeconfig)",
            "kubectl --kubeconfig $(tarragon kubeconfig) get pods",
        ),
        "check": ("tarragon check", "tarragon --context prod check --operator"),
        "operator": (
            "tarragon operator --kubeconfig ~/.kube/config",
            "tarragon operator --policy fifo --queues queues.yaml --log-format text",
        ),
        "node": (
            "tarragon node --kubeconfig ~/.kube/config --name laptop",
            "tarragon node --context kind --hollow 100 --cpu 16 --memory 64Gi --resource nvidia.com/gpu=8",
        ),
        "convert": (
            "tarragon convert old.yaml --to kubeflow.org/v1 > new.yaml",
            "tarragon convert -f - --to kubeflow.org/v1 < old.yaml",
        ),
        "diff": ("tarragon diff job.yaml", "tarragon --context prod diff -f job.yaml"),
        "simulate": (
            "tarragon simulate trace.csv --nodes 8 --gpus-per-node 8 --policy elastic --policy fifo",
            "tarragon simulate trace.csv --nodes 8 --report report.html",
            "tarragon simulate --from-cluster --add-nodes 2xcpu=4,memory=8Gi --submit job.yaml",
        ),
        "export-trace": ("tarragon export-trace > trace.csv", "tarragon --context prod export-trace -A > trace.csv"),
        "debug-dump": ("tarragon debug-dump digits", "tarragon debug-dump --output debug.tar.gz"),
        "examples": ("tarragon examples", "tarragon examples ./examples"),
        "docs": ("tarragon docs", "tarragon docs scheduling#why-a-job-waits"),
        "config": ("tarragon config view --show-origin", "tarragon config set namespace research"),
        "config view": ("tarragon config view --show-origin", "tarragon config view --all -o json"),
        "config set": ("tarragon config set run.timeout 2h", "tarragon config set list.output wide"),
        "config unset": ("tarragon config unset namespace", "tarragon config unset run.timeout"),
        "config path": ("tarragon config path", "cat $(tarragon config path)"),
        "version": ("tarragon version", "tarragon version -o json"),
        "completion": (
            "source <(tarragon completion bash)    # once, or in ~/.bashrc",
            "source <(tarragon completion zsh)     # once, or in ~/.zshrc",
            "tarragon completion fish | source     # once, or in ~/.config/fish/config.fish",
            "tarragon completion powershell | Out-String | Invoke-Expression  # in $PROFILE",
        ),
        "help": ("tarragon help run", "tarragon help config set"),
    }
)
"""At least two lines for every command, by its name, such as `config set`."""


HELP_WIDTH = 80
"""Columns of a help page on any terminal."""


def write_examples(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes the examples of the context's command, as the user calls the program."""
    with formatter.section("Examples"):
        for line in examples_of(ctx):
            for row in continued(line, HELP_WIDTH - formatter.current_indent):
                formatter.write(f"{' ' * formatter.current_indent}{row}\n")


def continued(line: str, width: int) -> Iterator[str]:
    """Yields a command that is too long in rows that a shell understands as one: they break before options."""
    begin = ""
    while len(begin + line) > width:
        at = line.rfind(" --", 1, width - len(begin) - len(" \\") + 1)
        if at < 0:
            break
        yield f"{begin}{line[:at]} \\"
        begin, line = "    ", line[at + 1 :]
    yield begin + line


def examples_of(ctx: click.Context) -> Iterator[str]:
    program = ctx.find_root().info_name or "tarragon"
    name = ctx.command_path.removeprefix(program).strip()
    for line in EXAMPLES.get(name, ()):
        yield line.replace("tarragon ", f"{program} ") if program.startswith("kubectl") else line
