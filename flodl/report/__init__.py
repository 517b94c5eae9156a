"""HINDSIGHT. What people see of a run: the rig at its start, its progress, and what came of it.

Rules of this room: it reads values (View, Result, EpochMetrics) and never a clock of its own making decisions;
foreign text is printed as it is, without markup; every figure has its unit; numbers come from the record alone.
"""
