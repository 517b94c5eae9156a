"""Who hears of a run's figures beside metrics.jsonl: one file per service, each an implementation of `ports.Logger`.

Rules of this room: a logger is made without its package, which is imported when the run begins; it knows no torch; what
goes wrong is raised: whoever calls tells it once and goes on. Every call comes from one thread, the logger's own.
"""
