"""Found by every Python of a replica whose log is JSON: prepares logging, and makes room for the user's sitecustomize.

It must not be noticed otherwise: it costs no time, no fault in it ends a program, and neither its folder nor itself
can be found any more when it is through. For Python 2.7 and from 3.4 on.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STREAMS = "TARRAGON_LOG_STREAMS"


def load(name):
    """A module of our folder, which is on no path. Python 2 empties one that is not kept here."""
    kept = "_tarragon_" + name
    if kept in sys.modules:
        return sys.modules[kept]
    path = os.path.join(HERE, name + ".py")
    module = sys.modules[kept] = type(sys)(kept)
    module.__file__ = path
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), module.__dict__)
    return module


def pipes():
    """Those that json_logs.py reads."""
    return frozenset(filter(None, os.environ.get(STREAMS, "").split(",")))


class Finder(object):
    """Waits for the first import of logging, which is slow, and which many programs never need."""

    def find_spec(self, name, _path=None, _target=None):
        if name != "logging":
            return None
        sys.meta_path.remove(self)
        from _frozen_importlib_external import PathFinder

        spec = PathFinder.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_prepare(module):
                execute(module)
                prepare(module)

            try:
                spec.loader.exec_module = execute_and_prepare  # type: ignore[method-assign]
            except AttributeError:  # a loader that takes no attributes; then logging stays as it is
                pass
        return spec

    def find_module(self, name, _path=None):
        """As Python 2 asks."""
        if name != "logging":
            return None
        sys.meta_path.remove(self)
        return self

    def load_module(self, name):
        module = __import__(name)
        prepare(module)
        return module


def prepare(logging):
    try:
        load("json_logging").install(logging, pipes())
    except Exception:  # then it logs as it always has
        pass


def excepthook(kind, value, trace):
    """A traceback as one line, where stderr is the log."""
    try:
        ours = load("json_logging")
        if issubclass(kind, Exception) and ours.is_log(sys.stderr, pipes()):
            ours.tell_uncaught(kind, value, trace)
            return
    except Exception:
        pass
    sys.__excepthook__(kind, value, trace)


def own_streams():
    """The numbers of stdout and stderr, if they are the container's log and not a pipe of another program."""
    leader = os.getsid(0) or 1
    found = []
    for stream in (1, 2):
        try:
            if os.path.samestat(os.fstat(stream), os.stat("/proc/%d/fd/%d" % (leader, stream))):
                found.append(stream)
        except OSError:  # closed, or another user's
            continue
    return tuple(found)


def hold_the_import_lock():
    """Python 2 drops it in a fork, and fails when the imports that have begun end: those of site, and of us by it."""
    if sys.version_info < (3,):
        import imp

        imp.acquire_lock()
        imp.acquire_lock()


def begin():
    if not pipes() and "TARRAGON_LOG_FIELDS" in os.environ:
        streams = own_streams()
        if streams:
            load("json_logs").take_over(streams)
            hold_the_import_lock()
    if pipes():
        if "logging" in sys.modules:
            prepare(sys.modules["logging"])
        else:
            sys.meta_path.insert(0, Finder())
        if sys.excepthook is sys.__excepthook__:
            sys.excepthook = excepthook


def give_way():
    """The next sitecustomize on the path takes our place, as if it had been found first."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if getattr(error, "name", None) not in {None, "sitecustomize"} or "sitecustomize" not in str(error):
            raise
    finally:
        if "sitecustomize" not in sys.modules and ours is not None:
            sys.modules["sitecustomize"] = ours


try:
    begin()
except Exception:  # a program that starts is worth more than a log that is tidy
    pass
give_way()
