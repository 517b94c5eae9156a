"""Many random fault schedules in virtual time: `python -m tests.bench.fault_schedules [number] [first seed]`.

Every one must end without deadlock, with LOST = DUP = 0 after every event and with equal survivors. 10,000 of them
take less than two minutes; exit 1 where one fails or time runs over (scaled to the number).
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from flodl.errors import FlodlError
from tests.scenarios.schedules import check, schedule_of

LIMIT_SECONDS_PER_10000 = 120.0


def main(number: int, first: int) -> int:
    """Run them; 0 when all is well."""
    began = time.perf_counter()
    ends: Counter[str] = Counter()
    failed = 0
    for seed in range(first, first + number):
        try:
            ends[check(schedule_of(seed)).status] += 1
        except (AssertionError, FlodlError, LookupError, ValueError, TypeError) as error:
            failed += 1
            print(f"seed {seed}: {error!r}")
    seconds = time.perf_counter() - began
    limit = LIMIT_SECONDS_PER_10000 * number / 10_000
    told = ", ".join(f"{status} {count}" for status, count in ends.most_common())
    print(f"{number} fault schedules in {seconds:.1f} s (limit {limit:.0f} s): {told}; failed checks: {failed}")
    return int(failed > 0 or seconds > limit)


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in (*sys.argv[1:3], "10000", "0")[:2])))
