"""Compiles the programs of the kubelet into the node's folder.

They start faster then, and a package upgrade does not affect those that run. A file has the format of PEP 552, with an
unchecked hash. `py_compile` is not used, as on a full disk some of its versions replace a program by half of it.
"""

from __future__ import annotations

import marshal
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path

from tarragon.localcluster.kubelet.base.files import write_bytes

_UNCHECKED_HASH = (1).to_bytes(4, "little")


def compile_program(source: Path, compiled: Path) -> None:
    """Compile a module. If it cannot be written, as on a full disk, the same one of an earlier start serves as well.

    Raises OSError.
    """
    text = source.read_bytes()
    header = MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(text)
    code = compile(text, str(source), "exec", dont_inherit=True)
    try:
        write_bytes(compiled, header + marshal.dumps(code))
    except OSError:
        if not compiled.exists() or not compiled.read_bytes().startswith(header):
            raise
