#!/usr/bin/env python3
"""Write tarragon/localcluster/apiserver/http/messages.json.gz: the protobuf encoding of each Kubernetes kind.

The program tools/protofields reads it from the Go types, with the installed Go. Run this again for a newer Kubernetes,
whose version is in tools/protofields/go.mod:

    python tools/make_protobuf.py [--check]
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TARGET = HERE.parent / "tarragon" / "localcluster" / "apiserver" / "http" / "messages.json.gz"


def main(arguments: list[str]) -> int:
    printed = subprocess.run(["go", "run", "."], cwd=HERE / "protofields", check=True, capture_output=True).stdout
    data = json.dumps(json.loads(printed), sort_keys=True, separators=(",", ":")).encode()
    if "--check" in arguments:
        if gzip.decompress(TARGET.read_bytes()) != data:
            print(f"{TARGET} is out of date; run python tools/make_protobuf.py")
            return 1
        return 0
    TARGET.write_bytes(gzip.compress(data, mtime=0))
    print(f"{TARGET}: {len(data):,} bytes, {TARGET.stat().st_size:,} compressed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
