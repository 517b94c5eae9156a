"""``python -m flodl`` and the console script ``flodl``: errors become exit codes here and nowhere else."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from flodl.errors import ConfigError, FlodlError

__all__ = ["main"]

NOT_READY = 3
BUG = 5  # a failure of our own leaves no bundle
# By import name, what pyproject.toml asks for. A module that a config names and nobody finds is that config's error.
PACKAGES = {
    "fabric": "fabric",
    "hydra": "hydra-core",
    "msgspec": "msgspec",
    "numpy": "numpy",
    "omegaconf": "omegaconf",
    "paramiko": "paramiko",
    "pynvml": "nvidia-ml-py",
    "rich": "rich",
    "safetensors": "safetensors",
    "torch": "torch",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit code. What a user can mend is told in words, without a traceback."""
    try:
        with _terminable(), _said():
            from flodl.app import run  # late: `python -m flodl.engine.agent` and `import flodl` need no Hydra

            run(sys.argv[1:] if arguments is None else arguments)
    except FlodlError as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            traceback.print_exc()
        if not error.is_told:
            _say(_told(error))
        return error.exit_code
    except KeyboardInterrupt:
        _say("flodl: interrupted")
        return 130
    except BrokenPipeError:  # `flodl task=status run=last | head`
        return 0
    except OSError as error:  # before a run: the working folder is gone, the output's disk is full
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            traceback.print_exc()
        _say(f"flodl: {error}")
        return NOT_READY
    except Exception as error:  # noqa: BLE001 - the last door
        return _unforeseen(error)
    finally:
        _let_go()
    return 0


def _unforeseen(error: Exception) -> int:
    """What nobody explains is a bug of ours, unless this interpreter has not what flodl needs."""
    package = PACKAGES.get((error.name or "").partition(".")[0]) if isinstance(error, ModuleNotFoundError) else None
    if package is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exc()
    if package is None:
        _say("flodl: this is a bug in flodl, not in your configuration; please report it with the lines above")
        return BUG
    _say(f"flodl: {sys.executable} has no {package}, which flodl needs; {_remedy(package)}")
    return NOT_READY


def _remedy(package: str) -> str:
    """How to get a package that is missing; beside a checkout there is, or will be, the environment of its Makefile."""
    install, root = f"{shlex.quote(sys.executable)} -m pip install", Path(__file__).parents[1]
    if not (root / "pyproject.toml").is_file():
        return f"get it with: {install} {package}"
    its_own = shlex.quote(str(root / ".venv" / "bin" / "python"))
    return f"use {its_own} (`make train` makes it), or get all of it with: {install} -e {shlex.quote(str(root))}"


@contextlib.contextmanager
def _said() -> Iterator[None]:
    """What is printed has left this process when this ends, or its error is ours to tell."""
    try:
        yield
    except SystemExit:  # so Hydra ends --help
        sys.stdout.flush()
        raise
    sys.stdout.flush()


def _let_go() -> None:
    """What standard output could not take is dropped: the interpreter would try again at its end, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end what is no run yet as Ctrl-C does. What is ignored (nohup) stays ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    ours = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []
    for number in ours:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a closed stream costs the words, not the exit code
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _told(error: FlodlError) -> str:
    if isinstance(error, ConfigError):
        count = len(error.problems)
        head = "flodl: the configuration is wrong" + (f" in {count} places:" if count > 1 else ":")
        return "\n".join([head, *(f"  {problem}" for problem in error.problems)])
    return f"flodl: {error}"


if __name__ == "__main__":
    sys.exit(main())
