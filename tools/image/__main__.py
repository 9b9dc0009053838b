"""The operator's image.

    python -m tools.image build [--architecture ARCHITECTURE]... [--output FOLDER] [--without-kubectl]
    python -m tools.image lock

`build` is `make image`. `lock` renews the list of Debian's packages: do that for each release, and when Debian has
mended a hole.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tarragon.base.clock import SystemClock
from tools.image.build import ARCHITECTURES, CACHE, Request, build, describe, read_origin
from tools.image.debian import LOCK, read_lock, render_lock
from tools.image.errors import ImageError
from tools.image.layout import compressed_size, unpacked_size
from tools.image.lock import describe_changes, renew_lock
from tools.image.staging import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image")
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build the image")
    building.add_argument("--architecture", action="append", choices=ARCHITECTURES, help="by default both")
    building.add_argument("--output", type=Path, default=ROOT / "dist", help="by default dist")
    building.add_argument("--without-kubectl", action="store_true", help="where there is no go")
    commands.add_parser("lock", help="renew the list of Debian's packages")
    arguments = parser.parse_args()
    try:
        return _renew() if arguments.command == "lock" else _build(arguments)
    except ImageError as error:
        print(f"tarragon: {error}", file=sys.stderr)
        return 1


def _build(arguments: argparse.Namespace) -> int:
    architectures = arguments.architecture or ARCHITECTURES
    if arguments.without_kubectl:
        print(
            "tarragon: an image WITHOUT kubectl: launchers of MPIJobs before v2beta1 need "
            "--kubectl-delivery-image (docs/install.md)",
            file=sys.stderr,
        )
    request = Request(
        output=arguments.output.absolute(), architectures=architectures, has_kubectl=not arguments.without_kubectl
    )
    result = build(request, read_origin())
    sizes = {
        architecture: (compressed_size(result.layout, image), unpacked_size(result.layout, image))
        for architecture, image in result.images.items()
    }
    print(*describe(result, sizes), sep="\n")
    return 0


def _renew() -> int:
    before = read_lock() if LOCK.exists() else None
    after = renew_lock(SystemClock(), CACHE)
    LOCK.write_text(render_lock(after))
    changes = list(describe_changes(before, after))
    print(*changes or ["nothing has changed"], sep="\n")
    return 0


sys.exit(main())
