"""The pages in a real browser: no error, figures drawn, values those of the JSON, wide and narrow, by keys too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flodl.record.folder import RunFolder
from flodl.record.result import read_result
from flodl.record.sweep import SweepFolder
from flodl.report.arm import Arm
from flodl.report.compare import compare, comparison_json
from flodl.report.leave import leave_comparison_page, leave_run_page
from flodl.report.markdown import comparison_markdown
from tests.browser.chromium import BROWSER, Browser
from tests.report.folders import arm_in

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")

EVIL = "</script><script>document.title='taken'</script>\"'<b>🦊"
LIMIT = 2_000_000
SEEDS = (0, 1)
MODES = ("cpu_async", "cpu_cadence", "cpu_sync")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    """Three modes, two seeds each, and a hostile arm that failed."""
    root = tmp_path_factory.mktemp("sweep")
    kinds = [(mode, seed) for mode in MODES for seed in SEEDS]
    arms = [arm_in(root, f"{i}", mode, seed, f"name={EVIL}") for i, (mode, seed) in enumerate(kinds)]
    arms.append(Arm(name=EVIL, overrides=("elche=nccl_sync", f"name={EVIL}"), status="failed", reason=EVIL))
    comparison, folder = compare(arms), SweepFolder(root)
    folder.write_comparison(comparison_json(comparison), comparison_markdown(comparison))
    assert leave_comparison_page(folder, comparison) == ""
    run = RunFolder(root / "0")
    assert leave_run_page(run, read_result(run.result_path)) == ""
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def is_as_wide_as_asked(browser: Browser) -> bool:
    return browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_both_pages_are_drawn_whole_and_without_an_error(
    sweep: SweepFolder, browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    for path, figures in ((sweep.comparison_page_path, 6 + len(MODES)), (RunFolder(sweep.path / "0").report_path, 7)):
        assert path.stat().st_size < LIMIT
        browser.troubles.clear()
        browser.open(path, width=width, dark=dark)
        assert browser.value("document.querySelectorAll('figure svg').length") == figures
        boxes = browser.value("[...document.querySelectorAll('svg.chart g path')].map(p => p.getTotalLength())")
        assert boxes
        assert min(boxes) > 10.0, "every line has a length"
        assert is_as_wide_as_asked(browser), "only tables scroll sideways, each by itself"
        smallest = "Math.min(...[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height))"
        assert browser.value(smallest) >= 11.0, "letters can be read"
        outside = """[...document.querySelectorAll('svg text')].filter(t => { const a = t.getBoundingClientRect(),
                     b = t.closest('svg').getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1
                     || a.top < b.top - 1 || a.bottom > b.bottom + 1 }).map(t => t.textContent)"""
        assert browser.value(outside) == []
        shade = browser.value("getComputedStyle(document.body).backgroundColor")
        assert shade == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
        browser.picture(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 20_000
        assert browser.troubles == []


def test_the_values_in_the_page_are_those_of_the_json(sweep: SweepFolder, browser: Browser) -> None:
    browser.open(sweep.comparison_page_path, width=1600, dark=False)
    document: dict[str, Any] = json.loads(sweep.comparison_json_path.read_text())
    curves = json.loads(browser.value("document.getElementById('curves').textContent"))
    drawn = {line["name"]: line["points"] for line in curves["eval-seconds"]["lines"]}
    for arm in document["arms"][:6]:
        points = [[point["seconds"], point["eval"]["loss"]] for point in arm["epochs"]]
        assert drawn[f"{arm['group']}, seed {arm['seed']}"] == points
    loss = "document.querySelector('[data-figure=loss_at_epoch][data-arm=\"3\"]').textContent"
    assert float(browser.value(loss)) == pytest.approx(document["arms"][3]["figures"]["loss_at_epoch"], rel=1e-3)
    assert browser.value("document.querySelector('.best').textContent") == document["conclusion"]
    assert browser.value("document.title") == "Comparison of 7 arms", "foreign text did nothing"
    assert EVIL in browser.value("document.body.innerText")


def test_keys_read_the_values_and_buttons_put_lines_away(sweep: SweepFolder, browser: Browser) -> None:
    browser.troubles.clear()
    browser.open(sweep.comparison_page_path, width=400, dark=True)
    browser.value("document.querySelector('svg[data-chart=loss-epoch]').focus()")
    for key in ("ArrowRight", "ArrowRight"):
        browser.press(key)
    told = browser.value("document.querySelector('figure .tip:not([hidden])').innerText")
    document: dict[str, Any] = json.loads(sweep.comparison_json_path.read_text())
    assert "epoch 2" in told
    mean = sum(document["arms"][i]["epochs"][1]["loss"] for i in (0, 1)) / 2
    assert f"elche=cpu_async, mean of 2\n{mean:.5g}" in told
    assert is_as_wide_as_asked(browser)
    browser.press("Escape")
    assert browser.value("document.querySelectorAll('figure .tip:not([hidden])').length") == 0
    lines = "[...document.querySelectorAll('g[data-group=\"0\"]')]"
    shown = f"{lines}.filter(g => getComputedStyle(g).display != 'none').length"
    assert browser.value(shown) > 0
    browser.value("document.querySelector('button[data-group=\"0\"]').click()")
    assert browser.value(shown) == 0
    assert browser.value("document.querySelector('button[data-group=\"0\"]').getAttribute('aria-pressed')") == "false"
    browser.value("document.querySelector('button[data-group=\"0\"]').click()")
    assert browser.value(shown) > 0
    assert browser.troubles == []
