"""Sent to hosts: one software environment with torch and flodl in it. The standard library alone.

Its one argument: {"folder", "torch": what pip installs, "index": where torch lies ("": pip's own), "wheel": flodl's}.
An environment that is there is never changed. One that was left unfinished, by this program, is made anew.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["main"]

UNFINISHED = ".flodl-unfinished"
LOOK = (
    "import json, platform, torch; from importlib.metadata import version; "
    "print('flodl-found: ' + json.dumps({'python': platform.python_version(), 'torch': torch.__version__, "
    "'cuda': torch.version.cuda, 'flodl': version('flodl')}))"
)


def main() -> None:
    """Make it, or look at the one that is there, and print the answer. What fails ends with its words, exit code 1."""
    given = json.loads(sys.argv[1])
    folder = Path(given["folder"])
    python = folder / "bin" / "python"
    mark = folder / UNFINISHED
    if mark.exists():
        _say(f"{folder} was left unfinished: made anew")
        shutil.rmtree(folder)
    is_new = not folder.exists()
    if is_new:
        _make(folder, mark, python, given)
    elif not python.exists():
        sys.exit(f"{folder} is there and is no environment: it is not touched")
    found = _found(python, folder)
    mark.unlink(missing_ok=True)
    answer = {"python": str(python), "is_new": is_new, "versions": found}
    sys.stdout.write("flodl-answer: " + json.dumps(answer) + "\n")


def _make(folder: Path, mark: Path, python: Path, given: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    mark.touch()
    _say(f"making {folder} with {sys.executable}")
    try:
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"no environment can be made there: {error}; on Debian: apt install python3-venv")
    index = ("--index-url", given["index"]) if given["index"] else ()
    _pip(python, given["torch"], *index)
    _pip(python, given["wheel"])


def _pip(python: Path, *arguments: str) -> None:
    _say(f"installing {Path(arguments[0]).name}" + (f" from {arguments[2]}" if len(arguments) > 2 else ""))
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"pip ended with {done.returncode}; the environment is unfinished, and is made anew next time")


def _found(python: Path, folder: Path) -> dict[str, str]:
    """What the environment itself says."""
    done = subprocess.run([str(python), "-P", "-c", LOOK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)  # fmt: skip
    said = done.stdout.splitlines() or ["nothing"]
    if done.returncode != 0 or not said[-1].startswith("flodl-found: "):
        sys.exit(f"{folder} holds no torch or no flodl that can be used: {said[-1]}")
    return json.loads(said[-1].removeprefix("flodl-found: "))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
