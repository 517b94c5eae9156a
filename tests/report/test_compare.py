"""Reckoned, not felt: every figure by hand, seeds paired, failed arms in, nothing absent shown as 0."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from flodl.record.folder import RunFolder
from flodl.record.result import Run, failed_result
from flodl.report.arm import Arm
from flodl.report.commands import commands, were_typed
from flodl.report.compare import Comparison, Question, compare, comparison_json
from flodl.report.comparison_page import comparison_page
from flodl.report.confidence import compared, confidence_words, two_sided
from flodl.spec.stop import TargetConfig
from tests.report.arms import arm, result_of

SCHEMA = Path(__file__).parents[2] / "docs" / "comparison.schema.json"
FAST = [arm(f"{s}", "cpu_async", s, [2.0, 1.0, 0.5], [1.0, 0.6, 0.30 + 0.01 * s], seconds=1.0 + 0.1 * s)
        for s in range(3)]  # fmt: skip
SLOW = [arm(f"{3 + s}", "cpu_sync", s, [2.2, 1.1, 0.6], [1.1, 0.7, 0.40 + 0.01 * s], seconds=2.0 + 0.15 * s)
        for s in range(3)]  # fmt: skip
SKIPPED = Arm(name="6", overrides=("elche=nccl_sync", "trainer.seed=0", "x=1"), status="skipped", reason="no GPU")
LOST = failed_result(ValueError("a bug"), Run(mode="cpu_async", average="parameters", world_size=2))
FAILED = Arm(name="7", overrides=("elche=cpu_async", "trainer.seed=9", "x=1"), status="failed", reason="a bug", seed=9,
             result=LOST)  # fmt: skip
ALL = [*FAST, *SLOW, SKIPPED, FAILED]


def held(comparison: Comparison) -> dict[str, Any]:
    """Its JSON, held to the schema."""
    document = json.loads(comparison_json(comparison))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    return document


def described() -> dict[str, Any]:
    """The schema of what is written. What is in a result.json, docs/run-folder.md says."""
    made = msgspec.json.schema(Comparison)
    told = {"description": "as in result.json; null: there is none", "type": ["object", "null"]}
    made["$defs"]["Compared"]["properties"]["result"] = told | {"default": None}
    seen: dict[str, Any] = {}

    def keep(node: object) -> None:
        match node:
            case {"$ref": str(name)}:
                name = name.rpartition("/")[2]
                if name not in seen:
                    seen[name] = made["$defs"][name]
                    keep(seen[name])
            case dict():
                for value in node.values():
                    keep(value)
            case list():
                for value in node:
                    keep(value)

    keep({"$ref": made["$ref"]})
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "What comparison.json holds"}
    return json.loads(json.dumps({**head, "$ref": made["$ref"], "$defs": dict(sorted(seen.items()))}))


def test_the_schema_in_the_documents_is_that_of_what_is_written() -> None:
    assert json.loads(SCHEMA.read_text()) == described()


def test_every_figure_of_a_run_by_hand() -> None:
    figures = compare(ALL).arms[0].figures
    assert figures is not None
    rank_time = 9.5 + 9.6 + 2 * (0.1 + 0.2) + (10 - 0.3 - 9.5) + (10 - 0.3 - 9.6)
    assert figures.loss_at_epoch == 0.5
    assert figures.metric_at_epoch == figures.metric_at_end == 0.30
    assert figures.eval_at_epoch == {"loss": 0.30}
    assert figures.seconds_to_target == 3.0, "the target is 0.42, the worst that any arm ended with"
    assert figures.loss_per_second == pytest.approx((2.0 - 0.5) / 3.0)
    assert figures.seconds_per_epoch == 1.0
    assert figures.idle_share == pytest.approx((0.2 + 0.1) / rank_time)
    assert figures.averaging_share == pytest.approx(0.4 / rank_time)
    assert (figures.rounds, figures.anchor, figures.divergence) == (12, 12, 0.012)


def test_arms_that_differ_in_their_seed_alone_are_one_group_with_mean_and_spread() -> None:
    found = {group.name: group for group in compare(ALL).groups}
    assert list(found) == ["elche=cpu_async", "elche=cpu_sync", "elche=nccl_sync"]
    assert found["elche=cpu_async"].arms == ("0", "1", "2", "7")
    assert found["elche=cpu_async"].ended_well == 3, "the failed one is in, and counts for nothing"
    assert found["elche=cpu_async"].seeds == (0, 1, 2)
    quality = found["elche=cpu_async"].figures["metric_at_epoch"]
    assert (quality.mean, quality.spread) == (pytest.approx(0.31), pytest.approx(0.01))
    assert found["elche=nccl_sync"].figures == {}


def test_the_winner_is_told_with_the_test_that_says_how_sure_it_is() -> None:
    found = compare(ALL)
    first = found.verdicts[0]
    assert (found.by, first.winner, first.runner_up) == ("time_to_target", "elche=cpu_async", "elche=cpu_sync")
    assert first.evidence is not None
    assert first.evidence.kind == "paired t-test"
    # differences 3.0, 3.15, 3.3: t = 3.15 / (0.15 / sqrt 3) = 36.37, two degrees of freedom
    assert first.evidence.p == pytest.approx(two_sided(36.373, 2), rel=1e-3)
    assert found.conclusion.startswith("elche=cpu_async is best by time to evaluated loss of 0.42 or less")
    assert "confidence over 99.9% (paired t-test, 3 seeds)" in found.conclusion


def test_one_seed_gives_no_confidence_and_asks_for_more() -> None:
    found = compare([FAST[0], SLOW[0]])
    assert found.verdicts[0].winner == "elche=cpu_async"
    assert "no confidence can be given: one seed says nothing of chance" in found.conclusion
    assert found.suggestion is not None
    assert found.suggestion.overrides == ("trainer.seed=1,2,3",)
    assert found.suggestion.groups == ("elche=cpu_async", "elche=cpu_sync"), "the winner's luck has to be tried again"
    first, second = found.suggestion.commands
    assert first == "python -m flodl -m elche=cpu_async x=1 trainer.seed=1,2,3"
    assert second == first.replace("async", "sync")


def test_seeds_that_do_not_match_are_not_paired() -> None:
    one, other = {0: 1.0, 1: 1.2, 2: 1.1}, {3: 2.0, 4: 2.1}
    assert compared(one, other, less=True).kind == "Welch's t-test"
    assert compared(one, {0: 1.1, 1: 1.3, 7: 9.0}, less=True).kind == "none", (
        "both differences are the same: no spread to test"
    )
    assert compared(one, {5: 1.0}, less=True).p is None


def test_students_distribution_is_that_of_the_tables() -> None:
    for freedom, t in ((1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042)):
        assert two_sided(t, freedom) == pytest.approx(0.05, abs=2e-4)
    assert two_sided(0.0, 4) == 1.0


def test_a_given_target_epoch_metric_and_criterion_are_taken() -> None:
    question = Question(by="quality", metric="train_loss", epoch=2, target=TargetConfig(metric="loss", value=0.65))
    found = compare(ALL, question)
    assert (found.epoch, found.metric, found.by) == (2, "train_loss", "quality")
    assert found.target is not None
    assert found.target.is_given
    fast, slow = found.arms[0].figures, found.arms[3].figures
    assert fast is not None
    assert slow is not None
    assert (fast.metric_at_epoch, fast.seconds_to_target) == (1.0, 2.0)
    assert slow.seconds_to_target == 6.0
    missed = compare(ALL, Question(target=TargetConfig(metric="loss", value=0.35))).arms[3].figures
    assert missed is not None
    assert missed.seconds_to_target is None, "never reached is absent, not 0"
    beyond = compare(ALL, Question(target=TargetConfig(metric="loss", value=0.01)))
    assert beyond.conclusion.startswith("No arm reached evaluated loss of 0.01 or less. elche=cpu_async is best by ")
    assert beyond.by == "quality"


def test_seeds_that_never_came_to_a_given_target_speak_against_their_arm() -> None:
    rash = [arm(f"{s}", "cpu_async", s, [2.0, 1.0], [1.0, 0.2 if s == 0 else 0.9], seconds=1.0) for s in range(3)]
    steady = [arm(f"{3 + s}", "cpu_sync", s, [2.0, 1.0], [1.0, 0.2], seconds=5.0 + 0.1 * s) for s in range(3)]
    given = Question(target=TargetConfig(metric="loss", value=0.3))
    found = compare([*rash, *steady], given)
    first = found.verdicts[0]
    assert (first.by, first.winner, first.factor) == ("time_to_target", "elche=cpu_sync", None)
    assert "10.2 s, before elche=cpu_async, 2 s (reached by 1 of 3); no confidence can be given" in found.conclusion
    lost = compare([*rash, *steady, FAILED], given).verdicts[0]
    assert lost.next_best == "2 s (reached by 1 of 4)", "one that failed did not reach it either"
    alone = compare([*rash[1:], *steady, FAILED], given)
    assert "10.2 s, the only one that reached it." in alone.conclusion
    assert "0.9 (in 2 of 3)" in compare([*rash[1:], *steady, FAILED], Question(by="quality")).conclusion


def test_no_confidence_is_claimed_for_a_winner_that_the_common_seeds_speak_against() -> None:
    one, other = {0: 2.0, 1: 2.1, 2: 0.1}, {0: 1.5, 1: 1.5, 3: 9.0}
    evidence = compared(one, other, less=True)
    assert (evidence.kind, evidence.p) == ("none", None)
    assert "the other one is better" in evidence.why
    assert compared(other, one, less=True).p is not None
    assert compared(one, other, less=False).p is not None


@pytest.mark.parametrize(
    ("p", "words"),
    [(1e-9, "over 99.9%"), (0.004, "99.6%"), (0.049, "95.1%"), (0.0509, "94.9%"), (0.5, "50.0%"), (1.0, "0.0%")],
)
def test_confidence_is_rounded_down_and_never_whole(p: float, words: str) -> None:
    assert confidence_words(p) == words


def test_what_was_asked_decides_or_is_said_to_be_missing() -> None:
    assert compare(ALL, Question(by="quality_at_end")).by == "quality", "at equal epochs they are the same"
    early = compare(ALL, Question(by="quality_at_end", epoch=2))
    assert (early.by, early.verdicts[0].value) == ("quality_at_end", pytest.approx(0.31)), "at the end, not at epoch 2"
    short = [arm("0", "cpu_async", 0, [2.0], [1.0]), arm("1", "cpu_sync", 0, [2.0], [0.9])]
    missing = compare(short, Question(by="loss_per_second"))
    assert missing.conclusion.startswith("Nothing tells the fall of the training loss per second (by=loss_per_second).")
    assert missing.by == "time_to_target"
    assert "Every arm reached it with its first epoch" in missing.conclusion


def test_what_keeps_a_verdict_from_being_believed_is_said_with_it() -> None:
    def told(*arms: Arm) -> str:
        return compare(arms).conclusion

    fast, slow = arm("0", "cpu_async", 0, [2.0, 1.0], [1.0, 0.5]), arm("1", "cpu_sync", 0, [2.0, 1.0], [1.0, 0.6])
    other = msgspec.structs.replace(slow, data="b")
    assert "did not all have the same data" in told(msgspec.structs.replace(fast, data="a"), other)
    assert "did not all have the same data" not in told(fast, other), "what is not known is no difference"
    longer = arm("1", "cpu_sync", 0, [2.0, 1.0, 0.5], [1.0, 0.6, 0.1])
    assert "They end with epoch 2 to 3 and are compared at epoch 2; by=quality_at_end" in told(fast, longer)
    poor = arm("2", "solo", 0, [2.0, 2.0], [9.0, 1.0])
    assert "Each of these two reached it with its first epoch" in told(fast, slow, poor)
    assert compare([FAST[0], FAST[1]]).conclusion.endswith(" at the end."), "one group reaches nothing before another"


def test_which_way_is_better_is_decided_once() -> None:
    upward = [arm("0", "cpu_async", 0, [2.0, 1.0], [0.5, 0.8]), arm("1", "cpu_sync", 0, [2.0, 1.0], [0.5, 0.6])]
    found = compare(upward, Question(by="quality", target=TargetConfig(mode="max")))
    assert not found.less
    assert found.verdicts[0].winner == "elche=cpu_async"
    assert found.target is not None
    assert (found.target.value, found.target.less) == (0.6, False)
    cells = dict(re.findall(r'class="([^"]*)" data-figure="metric_at_end" data-arm="(\w)"', comparison_page(found, {})))
    assert cells == {"number top": "0", "number": "1"}


def test_what_is_not_there_is_absent_and_not_0() -> None:
    lost = arm("0", "cpu_async", 0, [2.0, None], [1.0, None], eval={}, rounds=0)
    figures = compare([lost]).arms[0].figures
    assert figures is not None
    assert (figures.loss_per_second, figures.metric_at_epoch, figures.divergence) == (None, None, None)
    assert compare([lost]).target is None
    assert '"loss_per_second": null' in comparison_json(compare([lost])).decode()


def test_json_holds_to_its_schema_with_every_arm_and_its_whole_result() -> None:
    document = held(compare(ALL))
    first = document["arms"][0]
    assert first["result"]["rounds"] == 12
    assert first["figures"]["loss_at_epoch"] == 0.5
    assert [point["epoch"] for point in first["epochs"]] == [1, 2, 3]
    assert document["arms"][6]["status"] == "skipped"
    for arms in ([], [SKIPPED], [FAILED], [FAST[0]]):
        held(compare(arms))


def test_a_command_is_quoted_for_a_shell_keeps_seeds_and_is_none_where_words_were_cut(tmp_path: Path) -> None:
    def of(*texts: str) -> tuple[str, ...]:
        mine = [msgspec.structs.replace(arm(f"{seed}", "cpu_sync", seed, [1.0], [1.0]),
                                        overrides=(*texts, f"trainer.seed={seed}")) for seed in (4, 5)]  # fmt: skip
        compared = compare(mine).arms
        return commands(compared, [compared[0].group], ("elche.anchor=8",))

    (command,) = of("+elche.anchor=4", "model.hidden=[32, 8]", "experiment=ab_modes", "name='it''s'")
    assert shlex.split(command) == [
        "python", "-m", "flodl", "-m", "model.hidden=[32, 8]", "experiment=ab_modes", "name='it''s'",
        "trainer.seed=4,5", "elche.anchor=8", "hydra.sweeper.params=null",
    ]  # fmt: skip
    choices = RunFolder.adopt(tmp_path).choices_path
    assert not were_typed([RunFolder(tmp_path)]), "a program began it"
    choices.parent.mkdir(parents=True)
    for task in ("train", "resume"):
        choices.write_text(f"hydra: {{runtime: {{choices: {{task: {task}}}}}, overrides: {{task: []}}}}")
        assert were_typed([RunFolder(tmp_path)]) == (task == "train")
    assert of("(3 more: 1f2e3d)") == ()
    assert of("dataset.train=aaa... (1f2e3d)") == ()


@pytest.mark.parametrize(
    ("mode", "changes", "wanted"),
    [
        ("cpu_sync", {"idle_seconds": 5.0}, "elche=cpu_cadence"),
        ("cpu_cadence", {"idle_seconds": 5.0}, "elche=cpu_async"),
        ("cpu_async", {"averaging_seconds": 5.0}, "elche.anchor=24"),
        ("cpu_async", {"divergence_last": 0.2}, "elche.anchor=6"),
        ("cpu_async", {"data_wait_seconds": 5.0}, "loader.num_workers=4"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_next_arm_follows_from_what_the_best_one_loses(mode: str, changes: dict[str, float], wanted: str) -> None:
    best = result_of(mode, eval={"loss": 0.1}, divergence_last=changes.pop("divergence_last", 0.01))
    ranks = tuple(msgspec.structs.replace(rank, **changes) for rank in best.per_rank)
    other = arm("1", "solo", 0, [3.0, 2.0], [3.0, 2.0])
    one = msgspec.structs.replace(arm("0", mode, 0, [2.0, 1.0], [1.0, 0.1]),
                                  result=msgspec.structs.replace(best, per_rank=ranks))  # fmt: skip
    found = compare([one, other]).suggestion
    assert found is not None
    assert found.overrides == (wanted,)
    assert found.groups == (f"elche={mode}",)
    (command,) = found.commands
    own = [f"elche={mode}"] if wanted.partition("=")[0] != "elche" else []
    assert shlex.split(command) == ["python", "-m", "flodl", *own, "x=1", "trainer.seed=0", wanted]
    if wanted.startswith("loader."):
        busy = [compare([msgspec.structs.replace(one, num_workers=n), other]).suggestion for n in (2, 4, 16)]
        assert [s and s.overrides for s in busy[:2]] == [("loader.num_workers=4",), ("loader.num_workers=8",)]
        assert "loader." not in str(busy[2]), "more processes would not help"
