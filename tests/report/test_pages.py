"""The pages: whole without any other file, small, harmless whatever a run's text holds, readable in light and dark."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flodl.decide.messages import WindowDone
from flodl.errors import NotReady
from flodl.record.folder import RunFolder
from flodl.record.journal import read_journal
from flodl.record.result import Run, failed_result
from flodl.record.sweep import SweepFolder
from flodl.report import page
from flodl.report.arm import Arm
from flodl.report.compare import Question, compare
from flodl.report.comparison_page import comparison_page
from flodl.report.figures import FIGURES, shown
from flodl.report.history import RoundPoint, Strip, Trace, epoch_points, trace
from flodl.report.leave import leave_comparison_page, leave_run_page
from flodl.report.losses import Losses, LossPoint
from flodl.report.run_page import run_page
from flodl.report.scale import scale_of
from flodl.sim.costs import Fault
from flodl.spec.stop import TargetConfig
from tests.report.arms import arm
from tests.report.folders import arm_in, run_in

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\" onload='x' &amp; \x1b[31m\x00 🦊 \u202e"
LIMIT = 2_000_000


def embedded(text: str) -> dict[str, dict[str, object]]:
    found = re.search(r'<script type="application/json" id="curves">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag] += 1
        assert not [name for name, _ in attrs if name.startswith("on")]


def elements(text: str) -> Counter[str]:
    """How often each element is there, as a browser reads it; no element has a handler of its own."""
    parser = _Elements()
    parser.feed(text)
    return parser.found


def test_a_journal_tells_rounds_anchors_and_what_ranks_did(tmp_path: Path) -> None:
    result = run_in(tmp_path / "run", "cpu_cadence", 0)
    folder = RunFolder(tmp_path / "run")
    told = trace(folder)
    assert [point.round for point in told.rounds] == list(range(1, result.rounds + 1))
    assert told.rounds[0].anchor == 10
    assert told.rounds[-1].anchor == result.anchor
    assert told.rounds[0].divergence == pytest.approx(0.01, rel=0.06)
    assert [strip.place for strip in told.strips] == ["here:cpu", "here:cpu"]
    for strip, totals in zip(told.strips, result.per_rank, strict=True):
        assert all(0.999 < sum(parts) < 1.001 or sum(parts) <= 1.0 for parts in strip.stretches)
        compute = sum(parts[0] for parts in strip.stretches) / len(strip.stretches) * told.seconds
        assert compute == pytest.approx(totals.compute_seconds, rel=0.01)
    points = epoch_points(folder, result)
    assert [point.epoch for point in points] == [1, 2, 3, 4]
    assert points[-1].seconds == pytest.approx(result.wall_seconds, rel=0.05)


def test_a_journal_tells_the_losses_within_epochs(tmp_path: Path) -> None:
    result = run_in(tmp_path / "run", "cpu_cadence", 0)
    folder = RunFolder(tmp_path / "run")
    epochs, losses = epoch_points(folder, result), trace(folder).losses
    assert 3 * len(epochs) < len(losses) <= 10 * len(epochs)
    assert losses[-1].epoch == len(epochs)
    assert [(p.epoch, p.seconds) for p in losses] == sorted((p.epoch, p.seconds) for p in losses)
    _, told = read_journal(folder.journal_path)
    reports = [event for event, _ in told if isinstance(event, WindowDone)]
    mean = sum(done.loss_sum or 0.0 for done in reports) / sum(done.samples for done in reports)
    parts = [after.epoch - before for before, after in zip((0.0, *(p.epoch for p in losses)), losses, strict=False)]
    whole = sum((point.loss or 0.0) * part for point, part in zip(losses, parts, strict=True))
    assert whole / len(epochs) == pytest.approx(mean)


def test_epochs_of_losses_are_those_of_the_run_and_not_of_its_data_set(tmp_path: Path) -> None:
    run_in(tmp_path / "run", "cpu_cadence", 0, limit_batches=50)
    assert trace(RunFolder(tmp_path / "run")).losses[-1].epoch == 4


def test_rounds_that_are_dealt_again_after_a_death_lie_where_they_were_run(tmp_path: Path) -> None:
    """What remained of the grant had been dealt to more ranks."""
    run_in(tmp_path / "run", "cpu_sync", 0, faults=(Fault(kind="death", rank=1, at_seconds=1.0),))
    epochs = [point.epoch for point in trace(RunFolder(tmp_path / "run")).losses]
    assert epochs == sorted(set(epochs))
    losses = Losses()
    losses.epoch_samples = 100
    losses.order([(number, 1, 30 * number - 30, 30) for number in range(1, 5)])
    losses.order([(number, 1, 20 * number, 20) for number in range(3, 5)])
    losses.report(4, 4.0, 40, 1.0)
    assert [point.epoch for point in losses.told()] == [1.0], "and not 1.2"


def test_losses_of_long_runs_are_few_those_that_were_not_finite_are_gaps_and_a_later_part_is_told_elsewhere() -> None:
    def told(epochs: int, first: int = 0) -> list[LossPoint]:
        losses = Losses()
        losses.epoch_samples = 100
        for number in range(20 * epochs):
            losses.order([(number + 1, 5, first + 5 * number, 5)])
            losses.report(number + 1, number / 10, 5, None if number == 7 else 5.0 * number)
        return list(losses.told())

    short, long = told(2), told(1000)
    assert [point.epoch for point in short] == [pytest.approx(tenth / 10) for tenth in range(1, 21)]
    assert [point.loss for point in short[:4]] == [0.5, 2.5, 4.5, None]
    assert (len(long), long[-1].epoch) == (200, 1000)
    assert told(2, first=200) == []
    lost = Losses()
    lost.order([(1, 5, 0, 5)])
    lost.report(9, 0.0, 5, 1.0)
    assert lost.told() == (), "of a journal without its beginning nothing is made up"


def test_losses_far_apart_are_drawn_by_magnitudes_and_accuracies_are_not() -> None:
    deep = [arm(f"{i}", mode, 0, [20.0, 1.0, 0.03], [20.0, 1.0, 0.03]) for i, mode in enumerate(("a", "b"))]
    assert comparison_page(compare(deep), {}).count("loss (log scale)") == 4
    assert "log scale" not in comparison_page(compare([*deep, arm("2", "c", 0, [1.0, -1.0], [1.0, 0.0])]), {})
    risen = Question(target=TargetConfig(mode="max"))
    assert comparison_page(compare(deep, risen), {}).count("(log scale)") == 2, "the training's, not the judged one"


def test_the_time_between_a_ranks_death_and_its_return_is_no_activity_of_its(tmp_path: Path) -> None:
    result = run_in(tmp_path / "run", "cpu_cadence", 0, faults=(Fault(kind="death", rank=1, at_seconds=1.0),))
    assert result.restarts == {1: 1}
    found = {
        strip.rank: [sum(parts) for parts in strip.stretches] for strip in trace(RunFolder(tmp_path / "run")).strips
    }
    gone = [i for i, part in enumerate(found[1]) if part < 0.01]
    assert len(gone) > 1, "from its last report until its new process was there nothing is drawn"
    assert gone == list(range(gone[0], gone[-1] + 1))
    assert min(found[0][:-1]) > 0.99, "the other one was there all the time"


def test_what_cannot_be_read_is_absent_and_no_reason_to_fail(tmp_path: Path) -> None:
    run_in(tmp_path / "run", "cpu_async", 0)
    folder = RunFolder(tmp_path / "run")
    whole = folder.journal_path.read_bytes()
    folder.journal_path.write_bytes(whole[: len(whole) // 2] + b"\n{torn\n")
    assert trace(folder).rounds
    folder.journal_path.write_bytes(b"\xff\x00no journal\n")
    folder.metrics_path.write_bytes(b"neither\n")
    assert (trace(folder), epoch_points(folder, None)) == (Trace(), ())
    assert trace(RunFolder(tmp_path / "nowhere")) == Trace()
    lost = failed_result(ValueError("no data"), Run(mode="auto", average="auto", world_size=0))
    assert leave_run_page(folder, lost) == ""
    assert "failed: no data" in folder.report_path.read_text()
    assert "could not be made: FileNotFoundError" in leave_run_page(RunFolder(tmp_path / "nowhere"), lost)


def test_a_page_holds_the_values_of_the_json_and_fetches_nothing(tmp_path: Path) -> None:
    arms = [arm_in(tmp_path, f"{i}", mode, seed) for i, (mode, seed) in
            enumerate([("cpu_async", 0), ("cpu_async", 1), ("cpu_sync", 0), ("cpu_sync", 1)])]  # fmt: skip
    comparison = compare(arms)
    assert leave_comparison_page(SweepFolder(tmp_path), comparison) == ""
    text = SweepFolder(tmp_path).comparison_page_path.read_text()
    cells = dict(re.findall(r'data-figure="(\w+)" data-arm="0">([^<]*)<', text))
    assert cells == {figure.name: shown(getattr(comparison.arms[0].figures, figure.name), figure) for figure in FIGURES}
    lines = embedded(text)["loss-epoch"]["lines"]
    points = {line["name"]: line["points"] for line in lines}  # type: ignore[index, attr-defined]
    assert points["elche=cpu_async, seed 1"] == [[p.epoch, p.loss] for p in trace(RunFolder(tmp_path / "1")).losses]
    assert [epoch for epoch, _ in points["elche=cpu_async, mean of 2"]] == [1, 2, 3, 4]
    assert set(embedded(text)) == {"loss-epoch", "loss-seconds", "eval-epoch", "eval-seconds", "anchor-round",
                                   "divergence-round"}  # fmt: skip
    assert 'href="0/report.html"' in text
    assert set(re.findall(r'(?:src|href|action|url)\s*[=(]\s*"?([^"\s>)]+)', text)) == {
        "data:,", *(f"{i}/report.html" for i in range(4))
    }  # fmt: skip
    assert "http://" not in text
    assert "https://" not in text
    assert text.count('class="strips"') == 2, "one arm of each kind"


def test_hostile_text_is_text(tmp_path: Path) -> None:
    arms = [
        msgspec.structs.replace(
            arm("0", "cpu_async", 0, [2.0, 1.0], [1.0, 0.5]), name=EVIL, overrides=(f"name={EVIL}",)
        ),
        Arm(name="1", overrides=(f"model={EVIL}",), status="failed", reason=EVIL + "\nsecond line"),
    ]
    text = comparison_page(compare(arms), {EVIL: Trace()})
    assert elements(text)["script"] == 2, "our data and our script"
    assert elements(text)["img"] == 0
    assert not set(text) & {"\x1b", "\x00", "\u202e"}
    assert "🦊" in text
    assert "\nsecond line" in text
    json.dumps(embedded(text))
    run_in(tmp_path / "run", "cpu_async", 0)
    folder = RunFolder(tmp_path / "run")
    found = failed_result(ValueError(EVIL), Run(name=EVIL, mode=EVIL, average="", world_size=1, hosts=(EVIL,)))
    assert leave_run_page(folder, found) == ""
    written = folder.report_path.read_text()
    assert elements(written)["script"] == 2


def test_the_table_of_hosts_that_are_not_ready_keeps_its_lines(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    run = Run(mode="auto", average="auto", world_size=0)
    text = run_page(RunFolder(tmp_path / "run"), failed_result(NotReady("not ready:\nerror  a\n       b"), run))
    assert "<pre>error  a\n       b</pre>" in text
    assert "not ready:</p>" in text
    assert "0 ranks" not in text


def test_absent_and_infinite_values_are_a_dash_and_never_a_point() -> None:
    lost = arm("0", "cpu_async", 0, [2.0, None, 1.0], [1.0, None, 0.5])
    text = comparison_page(compare([lost]), {"0": Trace(rounds=(RoundPoint(round=1, seconds=1.0, anchor=None,
                                                                            divergence=0.0),))})  # fmt: skip
    assert embedded(text)["loss-epoch"]["lines"][0]["points"] == [[1, 2.0], [3, 1.0]]  # type: ignore[index]
    assert '<td class="number">-</td>' in text
    assert "anchor-round" not in embedded(text), "no journal told it"
    for value in (None, float("nan"), float("inf")):
        assert shown(value, FIGURES[0]) == "-"
    assert scale_of([float("nan")], 0, 1).ticks


def test_fifteen_long_arms_are_under_two_megabytes() -> None:
    losses = [1.0 / (i + 1) + 0.123456789 for i in range(2000)]
    arms = [arm(f"{i}", f"cpu_{'abcde'[i // 3]}", i % 3, losses, losses) for i in range(15)]
    rounds = tuple(
        RoundPoint(round=i, seconds=i * 0.123456789, anchor=i, divergence=1 / (i + 7)) for i in range(1, 201)
    )
    strip = Strip(rank=0, place="here:cpu", stretches=tuple((0.1 + i / 1200, 0.2, 0.1, 0.1, 0.0) for i in range(120)))
    told = Trace(seconds=2000.0, rounds=rounds, strips=(strip,) * 8)
    text = comparison_page(compare(arms), {one.name: told for one in arms})
    assert 100_000 < len(text.encode()) < LIMIT


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_stands_out_from_the_paper(scheme: str) -> None:
    text = (Path(page.__file__).parent / "page.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", blocks[scheme == "dark"]))
    paper = _luminance(colours["paper"])

    def contrast(name: str) -> float:
        high, low = sorted((_luminance(colours[name]), paper), reverse=True)
        return (high + 0.05) / (low + 0.05)

    lines = [f"c{i}" for i in range(8)] + [f"a{i}" for i in range(5)]
    assert {name: contrast(name) for name in lines if contrast(name) < 3.0} == {}
    assert {name: contrast(name) for name in ("ink", "soft", "link", "good", "bad") if contrast(name) < 4.5} == {}
    assert len({colours[f"c{i}"] for i in range(8)}) == 8


def test_what_the_guard_objected_to_stands_in_the_page(tmp_path: Path) -> None:
    quiet, drifting = (run_in(tmp_path / f"{d}", "cpu_cadence", 0, divergence=d) for d in (0.01, 0.5))
    assert "Guard and meta-controller" not in run_page(RunFolder(tmp_path / "0.01"), quiet)
    told = run_page(RunFolder(tmp_path / "0.5"), drifting)
    found = trace(RunFolder(tmp_path / "0.5")).objections
    assert any(objection.text.startswith("SuppressGrowth: divergence rises") for objection in found)
    assert told.count("SuppressGrowth: divergence rises") == len([o for o in found if "SuppressGrowth" in o.text])


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
@example(16384.002646793146, 1e-06)
def test_a_scale_begins_and_ends_at_a_tick_and_holds_all_values(low: float, span: float) -> None:
    high = low + span
    scale = scale_of([low, high], 0.0, 100.0)
    margin = 1e-6 * max(abs(low), abs(high))
    assert scale.low <= low + margin
    assert high - margin <= scale.high
    assert scale.ticks[0] == pytest.approx(scale.low, abs=margin + 1e-9)
    assert scale.ticks[-1] == pytest.approx(scale.high, abs=margin + 1e-9)
    assert 3 <= len(scale.ticks) <= 8


def test_a_signal_while_the_page_is_made_costs_the_page_alone(tmp_path: Path) -> None:
    class Pressed(RunFolder):
        def write_report(self, page: str) -> None:
            raise KeyboardInterrupt

    result = run_in(tmp_path / "run", "cpu_async", 0)
    assert leave_run_page(Pressed(tmp_path / "run"), result) == "report.html could not be made: KeyboardInterrupt: "


def test_what_to_try_next_stands_on_the_page_as_a_command_and_means_nothing_in_html() -> None:
    both = [arm("0", "cpu_sync", 0, [2.0, 1.0], [1.0, 0.5]), arm("1", "cpu_async", 0, [2.0, 1.0], [1.0, 0.6])]
    evil = [msgspec.structs.replace(one, overrides=(*one.overrides, "name='<b>'")) for one in both]
    text = comparison_page(compare(evil), {})
    assert "<code>python -m flodl " in text
    assert "<b>" not in text
