"""An agent that is forked from the program."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, signal
from pathlib import Path
from flodl.engine import forked
agent = forked.ForkedAgent()
(child,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
os.kill(int(child), signal.SIGSTOP)
forked.DROP_SECONDS = 0.2
agent.drop()
print(os.path.exists(f"/proc/{child}"))
"""


def test_an_agent_that_does_not_end_by_itself_is_killed_and_leaves_no_process() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


REAPED = """
import os
from pathlib import Path
from flodl.engine.forked import ForkedAgent
agent = ForkedAgent()
(child,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
agent.stdin.close()
os.waitpid(int(child), 0)
print(agent.wait(0.0))
agent.kill()
agent.drop()
"""


def test_one_that_somebody_else_has_reaped_has_ended() -> None:
    done = subprocess.run([sys.executable, "-c", REAPED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
