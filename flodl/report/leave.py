"""Leave a page beside what it is about. One that cannot be made costs nothing but the page: the reason is returned."""

from __future__ import annotations

from flodl.record.folder import RunFolder
from flodl.record.result import Result
from flodl.record.sweep import SweepFolder
from flodl.report.compare import Comparison
from flodl.report.comparison_page import comparison_page
from flodl.report.curves import drawn_arms
from flodl.report.history import trace
from flodl.report.run_page import run_page

__all__ = ["leave_comparison_page", "leave_run_page"]


def leave_run_page(folder: RunFolder, result: Result) -> str:
    """Write a run's page; "" or why there is none. A signal ends this and not the run, which is over."""
    try:
        folder.write_report(run_page(folder, result))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the result is worth more than its picture
        return f"{folder.report_path.name} could not be made: {type(error).__name__}: {error}"
    return ""


def leave_comparison_page(sweep: SweepFolder, comparison: Comparison) -> str:
    """Write a comparison's page; "" or why there is none."""
    try:
        traces = {arm.name: trace(RunFolder(sweep.path / arm.folder)) for arm in drawn_arms(comparison) if arm.folder}
        sweep.write_page(comparison_page(comparison, traces))
    except Exception as error:  # noqa: BLE001 - the figures are written, in two forms
        return f"{sweep.comparison_page_path.name} could not be made: {type(error).__name__}: {error}"
    return ""
