"""Manual pages and completion scripts of the wheel, made of the reference of commands. Uses the standard library only.

The hook of the build, tools/hatch_build.py, runs this where neither click nor Tarragon can be imported. The reference,
docs/reference/commands.md, is written from the code, and `make check` compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

PROGRAM = "tarragon"
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")
_CELL = re.compile(r"\s*(?<!\\)\|\s*")

COMPLETIONS: Mapping[str, str] = {
    "share/bash-completion/completions/tarragon": (
        '# Loaded by bash-completion at the first Tab behind tarragon.\neval "$(tarragon completion bash)"\n'
    ),
    "share/zsh/site-functions/_tarragon": (
        "#compdef tarragon\n"
        "# Loaded at the first Tab behind tarragon, whose words are completed at once.\n"
        'eval "$(tarragon completion zsh)"\n'
        '_tarragon_completion "$@"\n'
    ),
    "share/fish/vendor_completions.d/tarragon.fish": (
        "# Loaded at the first Tab behind tarragon.\ntarragon completion fish | source\n"
    ),
}
"""The files that shells look for, by their paths below a prefix. They ask the program, as its words change with it."""


def shared_files(reference: str, version: str) -> dict[str, str]:
    """Returns the texts of all files below a prefix such as /usr or a virtualenv, by their paths."""
    pages = manual_pages(reference, version)
    return {**COMPLETIONS, **{f"share/man/man1/{name}.1": text for name, text in pages.items()}}


def manual_pages(reference: str, version: str) -> dict[str, str]:
    """Returns the pages in the language of man(7), by name: `tarragon`, `tarragon-list`, `tarragon-config-set`."""
    titles = _SECTION.split(reference)[1:]
    sections = dict(zip(titles[::2], titles[1::2], strict=True))
    options = sections.pop("Options of every command")
    result = {"tarragon": "\n".join(_overview(sections, options, version)) + "\n"}
    for title, text in sections.items():
        result[title.replace(" ", "-")] = "\n".join(_page(title, text, version)) + "\n"
    return result


def _overview(sections: Mapping[str, str], options: str, version: str) -> Iterator[str]:
    yield from _head(PROGRAM, "train jobs on this machine, or on a Kubernetes cluster", version)
    yield from (".SH SYNOPSIS", r".B tarragon", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]")
    yield ".SH COMMANDS"
    for title, text in sections.items():
        yield from (".TP", rf"\fB{escaped(title)}\fR", _inline(_summary(text)))
    yield ".SH OPTIONS"
    yield "Of every command, before or behind its name."
    yield from _blocks(options)
    yield ".SH FILES"
    yield from (".TP", r"\fI~/.tarragon\fR", r"The cluster of this machine, or in \fBTARRAGON_HOME\fR.")
    yield from (".TP", r"\fI~/.config/tarragon/config.yaml\fR", r"Defaults of options; see \fBtarragon\-config\fR(1).")
    yield ".SH SEE ALSO"
    yield r"\fBtarragon\-run\fR(1), \fBtarragon docs\fR, which prints the documentation, \fBkubectl\fR(1)"


def _page(title: str, text: str, version: str) -> Iterator[str]:
    usage = next(line for line in text.splitlines() if line.startswith("    ")).strip()
    yield from _head(title.replace(" ", "-"), _plain(_summary(text)), version)
    yield from (".SH SYNOPSIS", rf"\fB{escaped(title)}\fR{escaped(usage.removeprefix(title))}")
    yield ".SH DESCRIPTION"
    yield from _blocks(text.replace(f"    {usage}\n", "", 1))
    yield ".SH SEE ALSO"
    yield r"\fBtarragon\fR(1), which has the options of every command"


def _head(name: str, summary: str, version: str) -> Iterator[str]:
    yield f'.TH "{escaped(name.upper())}" "1" "" "tarragon {escaped(version)}" "Tarragon"'
    yield ".SH NAME"
    yield rf"{escaped(name)} \- {escaped(summary[:1].lower() + summary[1:].rstrip('.'))}"


def _summary(text: str) -> str:
    """Returns the first sentence of a section, which follows the usage."""
    paragraph = next(part for part in text.strip("\n").split("\n\n") if not part.startswith("    "))
    return re.split(r"(?<=[.])\s", " ".join(paragraph.split()), maxsplit=1)[0]


def _blocks(text: str) -> Iterator[str]:
    """Yields the paragraphs, blocks of code, and tables of a section."""
    for block in re.split(r"\n\n(?=\S)", text.strip()):
        lines = block.strip("\n").splitlines()
        if not lines:
            continue
        if block.startswith("```"):
            yield from (".sp", ".RS 4", ".nf", *(escaped(line) for line in lines[1:-1]), ".fi", ".RE")
        elif block.startswith("|"):
            yield ".SH OPTIONS" if lines[0].startswith("| option") else ".PP"
            yield from _options(lines[2:])
        elif block.strip() == "Examples:":
            yield ".SH EXAMPLES"
        else:
            yield from (".PP", _inline(" ".join(lines)))


def _options(rows: Sequence[str]) -> Iterator[str]:
    for row in rows:
        names, meaning, variable = _CELL.split(row.strip().strip("|").strip())[:3]
        yield ".TP"
        yield re.sub(r"`([^`]*)`", lambda found: rf"\fB{escaped(found[1])}\fR", names.replace("&#124;", "|"))
        yield _inline(meaning) + (rf" [\fB{escaped(variable.strip('`'))}\fR]" if variable else "")


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text.replace("&#124;", "|")).replace("`", "")


def _inline(text: str) -> str:
    """Returns a text of Markdown: code becomes bold, and of a link its words are left."""
    parts = re.split(r"`([^`]*)`", _LINK.sub(r"\1", text.replace("&#124;", "|")))
    return "".join(rf"\fB{escaped(part)}\fR" if number % 2 else escaped(part) for number, part in enumerate(parts))


def escaped(text: str) -> str:
    """Returns the text so that man(7) prints each of its characters, and `-` as what shells understand."""
    found = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{found}" if found.startswith((".", "'")) else found
