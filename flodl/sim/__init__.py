"""The other world: a virtual clock and costs; the same coordinator decides here as live."""

from __future__ import annotations

from flodl.sim.costs import Costs, Fault, SpeedChange, costs_of
from flodl.sim.run import Simulated, simulate
from flodl.sim.world import VirtualWorld

__all__ = ["Costs", "Fault", "Simulated", "SpeedChange", "VirtualWorld", "costs_of", "simulate"]
