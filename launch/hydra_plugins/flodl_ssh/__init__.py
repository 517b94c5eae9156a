"""The Hydra launcher of flodl: the arms of a sweep, one after another or side by side on hosts of their own.

Rules of this room: it runs any task function; what it knows of flodl it imports when it runs; modules that begin with
an underscore are not loaded by Hydra's search for plugins, which happens at every start.
"""
