"""Makes the records that Python's logging writes to a replica's log lines of JSON, and uncaught exceptions, too.

Loaded by sitecustomize.py when a program imports logging. Only what goes into one of the pipes that json_logs.py reads
is changed: files, and output that the program's own parent reads, stay as they are. For Python 2.7 and from 3.4 on.
"""

import json
import os
import sys
import time
import traceback

SOURCE = "logging.googleapis.com/sourceLocation"
LINE = 15 * 1024  # json_logs.py takes lines of 16 KiB for whole


def is_log(stream, pipes):
    found = os.fstat(stream.fileno())
    return "%d:%d" % (found.st_dev, found.st_ino) in pipes


def severity(level):
    """Levels of one's own count as the next lower one that has a name."""
    for least, name in ((50, "CRITICAL"), (40, "ERROR"), (30, "WARNING"), (20, "INFO")):
        if level >= least:
            return name
    return "DEBUG"


def stamp(moment):
    second = int(moment)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + ".%06dZ" % int((moment - second) * 1e6)


def line(facts):
    """ASCII, whatever the stream's encoding. The middle of a message that is too long is left out."""
    encoded = json.dumps(facts)
    while len(encoded) > LINE and len(facts["message"]) > 1:
        text = facts["message"]
        keep = min(len(text) - 1, len(text) * LINE * 9 // (len(encoded) * 10)) // 2
        facts = dict(facts, message=text[:keep] + "\n[...]\n" + text[len(text) - keep :])
        encoded = json.dumps(facts)
        if not keep:
            break
    return encoded + "\n"


def of_record(record):
    message = record.getMessage()
    parts = [message if hasattr(message, "encode") else str(message)]
    if record.exc_info:
        parts.append("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
    elif record.exc_text:
        parts.append(record.exc_text)
    if getattr(record, "stack_info", None):
        parts.append(record.stack_info)
    source = {"file": record.pathname, "line": str(record.lineno), "function": record.funcName}
    return {
        "time": stamp(record.created),
        "severity": severity(record.levelno),
        "message": "\n".join(parts),
        "logger": record.name,
        SOURCE: source,
    }


def is_json_already(handler, record):
    """Whether somebody has given the handler a formatter that writes objects."""
    formatter = handler.formatter
    if formatter is None or type(formatter).__module__ in {"logging", "absl.logging"}:
        return False
    return handler.format(record).startswith("{")


def install(logging, pipes):
    """Handlers that write elsewhere, and all that we can't do, are left to the method that was there."""
    plain = logging.StreamHandler.emit

    def emit(self, record):
        try:
            said = line(of_record(record)) if is_log(self.stream, pipes) and not is_json_already(self, record) else None
        except Exception:  # bad arguments of a record, for example: the plain way tells that as it always does
            said = None
        if said is None:
            plain(self, record)
            return
        try:
            self.stream.write(said)
            self.flush()
        except Exception:
            self.handleError(record)

    logging.StreamHandler.emit = emit


def tell_uncaught(kind, value, trace):
    """One line for the whole traceback."""
    text = "".join(traceback.format_exception(kind, value, trace)).rstrip("\n")
    sys.stderr.write(line({"time": stamp(time.time()), "severity": "ERROR", "message": text}))
    sys.stderr.flush()
