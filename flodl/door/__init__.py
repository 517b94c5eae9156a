"""The programmatic door: what the config tree can say, said in Python. It ends in the same JobSpec and the same run.

`config` is what a program says, `tree` lays it over the composed tree, `named` finds the import path of a callable,
`trainer` starts the run and `handle` is what comes back. Everything public is exported, lazily, by `flodl` itself.
"""
