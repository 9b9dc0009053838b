"""Prints the UUID of the one GPU that this container has, and holds the GPU until the pod is deleted.

For an image without a shell; gpu_anchor.sh does the same where there is one. It is given to Python by `-c`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    sys.stdout.write(uuid() + "\n")
    sys.stdout.flush()
    while True:
        signal.pause()


def uuid() -> str:
    visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    if visible.startswith(("GPU-", "MIG-")):
        return visible
    try:
        # NVIDIA's runtime brings it.
        listed = subprocess.run(
            ["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except OSError as error:
        sys.exit(f"nvidia-smi -L fails: {error}")
    if listed.returncode != 0:
        sys.exit(f"nvidia-smi -L fails: {listed.stdout.strip()}")
    # A part of a GPU (MIG) is listed after the GPU.
    found = re.findall(r"\(UUID: ([^)]*)\)", listed.stdout)
    return found[-1] if found else ""


if __name__ == "__main__":
    main()
