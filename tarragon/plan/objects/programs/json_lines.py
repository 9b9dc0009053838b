"""The lines of a log of JSON: out of the bytes that a program says, with what is known of who said them.

For Python 2.7 and from 3.4 on.
"""

import collections
import json
import re
import time

LABELS = "logging.googleapis.com/labels"
SOURCE = "logging.googleapis.com/sourceLocation"
LINE = 16 * 1024  # bytes; longer lines are told in pieces, as container runtimes do it
LAST_LINES, LAST_BYTES = 80, 2048  # what Kubernetes keeps of a log
FOLLOWS, FIRST_BITS = 0x80, 0xC0  # a byte of UTF-8 that does not begin a character

SEVERITIES = {
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "F": "CRITICAL",
    "TRACE": "DEBUG",
    "DEBUG": "DEBUG",
    "INFO": "INFO",
    "NOTICE": "NOTICE",
    "WARN": "WARNING",
    "WARNING": "WARNING",
    "ERROR": "ERROR",
    "FATAL": "CRITICAL",
    "CRITICAL": "CRITICAL",
    "ALERT": "ALERT",
    "EMERGENCY": "EMERGENCY",
}
DEFAULTS = {1: "INFO", 2: "DEFAULT"}  # nothing is known of a line on stderr: warnings and progress bars go there, too

PREFIXES = (
    # 2026-11-21 10:00:00.000000: I tensorflow/core/util/port.cc:153] text; the first versions without the time
    re.compile(r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: )?(?P<level>[IWEF]) (?P<file>[^\s:]+):(?P<line>\d+)\] ?"),
    # I1121 10:00:00.000000 4711 file.cc:12] text, and what absl says before it has a clock: I0000 00:00:1763719200.1
    re.compile(r"(?P<level>[IWEF])\d{4} \d\d:\d\d:\d+\.\d+ +(?:\d+ +)?(?P<file>[^\s:]+):(?P<line>\d+)\] ?"),
    # WARNING:tensorflow:text, WARNING: text
    re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL):(?:(?P<logger>[\w.-]+):| )"),
)
LINE_END = re.compile(r"\r\Z")
BEGINNINGS = frozenset("IWEFDC2")

ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
TEXT = type(b"".decode("ascii"))


class Splitter(object):
    """Puts what is read together into lines."""

    def __init__(self):
        self.rest = b""

    def feed(self, data):
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        whole = []
        for line in lines:
            pieces, last = cut(line)
            whole += pieces
            whole.append(last)
        pieces, self.rest = cut(self.rest)
        return whole + pieces

    def finish(self):
        rest, self.rest = self.rest, b""
        return [rest] if rest else []


def cut(line):
    """Pieces of a line that is too long, and its end. Not cut within a character of UTF-8."""
    pieces = []
    while len(line) > LINE:
        at = LINE
        while at > LINE - 4 and bytearray(line[at : at + 1])[0] & FIRST_BITS == FOLLOWS:
            at -= 1
        pieces.append(line[:at])
        line = line[at:]
    return pieces, line


class Teller(object):
    """Makes the lines of JSON, and remembers the last words as people would read them."""

    def __init__(self, fields, clock=time.time):
        self.fields = fields
        self.labels = dict((name, TEXT(value)) for name, value in fields.items())
        self.tail = ("," + ENCODER.encode(dict(fields, **{LABELS: self.labels}))[1:] + "\n").encode("utf-8")
        self.clock = clock
        self.second, self.stamp = None, ""
        self.last = collections.deque(maxlen=LAST_LINES)  # type: collections.deque[str]

    def line(self, raw, stream):
        """What is told instead of these bytes."""
        text = raw.decode("utf-8", "replace")
        text = LINE_END.sub("", text)
        found = self.of_json(text, stream) if text.startswith("{") else None
        if found is not None:
            self.last.append(found.get("message") if isinstance(found.get("message"), TEXT) else text)
            return (ENCODER.encode(found) + "\n").encode("utf-8", "replace")
        self.last.append(text)
        facts = recognised(text) or {"severity": DEFAULTS[stream], "message": text}
        head = '{"time":"%s",' % self.now() + ENCODER.encode(facts)[1:-1]
        return head.encode("utf-8", "replace") + self.tail

    def of_json(self, text, stream):
        """The object that the line is, with our fields; None where it is none."""
        try:
            found = json.loads(text)
            if not isinstance(found, dict):
                return None
            ENCODER.encode(found)  # NaN can be read, and not written
        except Exception:  # any number of ways to be no JSON, or too deep or too large
            return None
        self.complete(found, stream)
        return found

    def complete(self, found, stream):
        level = found.get("level", found.get("levelname"))
        known = SEVERITIES.get(level.upper()) if isinstance(level, TEXT) else None
        found.setdefault("time", self.now())
        found.setdefault("severity", known or DEFAULTS[stream])
        if isinstance(found.get("msg"), TEXT):
            found.setdefault("message", found["msg"])
        own = dict((name, found[name]) for name in self.fields if name in found and found[name] != self.fields[name])
        if own:
            found["program"] = own  # which replica it is we know better; nothing that was said is lost
        labels = found.get(LABELS)
        found.update(self.fields)
        found[LABELS] = dict(labels, **self.labels) if isinstance(labels, dict) else self.labels

    def now(self):
        """RFC 3339, in UTC."""
        moment = self.clock()
        second = int(moment)
        if second != self.second:
            self.second, self.stamp = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return "%s.%06dZ" % (self.stamp, int((moment - second) * 1e6))

    def last_words(self):
        return "\n".join(self.last).encode("utf-8", "replace")[-LAST_BYTES:]


def recognised(text):
    """Severity and place of a line whose beginning says them, and the rest of it."""
    if text[:1] not in BEGINNINGS:
        return None
    for prefix in PREFIXES:
        match = prefix.match(text)
        if match:
            found = match.groupdict()
            facts = {"severity": SEVERITIES[found["level"]], "message": text[match.end() :]}
            if found.get("logger"):
                facts["logger"] = found["logger"]
            if found.get("file"):
                facts[SOURCE] = {"file": found["file"], "line": found["line"]}
            return facts
    return None
