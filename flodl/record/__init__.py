"""MEMORY. What a run leaves behind: its folder, journal, metrics, status, result and logs.

Rules of this room: only `folder` spells file names; a file appears whole or is appended to by whole lines; nothing
here knows torch or hydra; every file says its schema; what is read back is checked.
"""
