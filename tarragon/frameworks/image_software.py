"""Software that the images of jobs contain, and that a local environment that stands for an image may lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_PYTHON = r"(?:^|[\s;|&/(])python(?:3(?:\.\d+)?)?(?:$|[\s;|&)])"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSoftware:
    """A Python module or a program, and how to tell a container that needs it."""

    title: str
    """How messages call it: `TensorFlow`."""
    module: str = ""
    """The Python module; empty for a program."""
    program: str = ""
    """The program on PATH; empty for a module."""
    partner: str = ""
    """A Python module that works only with a program of its own installation."""
    shared_library: str = ""
    """A pattern of file names in the environment's `lib`, from which that module knows that installation."""
    image: str = ""
    """A part of the names of images that have it; empty for any image. A script may import the module, too."""
    command: str
    """A pattern of commands that need it; it is searched for in each word."""
    packages: Sequence[str]
    """The packages that have it, first the one that messages name."""


def python_library(title: str, module: str, packages: Sequence[str]) -> ImageSoftware:
    """A Python library, without which images that have its module in their names can't run Python programs."""
    return ImageSoftware(title=title, module=module, image=module, command=_PYTHON, packages=packages)
