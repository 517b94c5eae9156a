"""docs/benchmark.md says what the run folders say."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flodl.decide.messages import EpochEnded
from flodl.record.folder import RunFolder
from flodl.record.metrics import MetricsFile
from flodl.record.result import Result
from flodl.record.sweep import SweepFolder
from flodl.report.arm import Arm
from flodl.report.compare import compare, comparison_json
from tests.bench.document import page
from tests.bench.section import DdpEpoch, DdpRun, Section
from tests.record.figures import epoch, run_result, window_done

SECTION = Section(model="mlp", dataset="digits", cluster="rehearsal", epochs=2, seeds=(0, 1), cpu="a|b CPU", cores=2)


def swept(folder: Path, *results: Result, losses: tuple[float, ...]) -> None:
    """A sweep over seeds, with the same evaluations after each epoch of 2.5 s in every run."""
    arms: list[Arm] = []
    for seed, result in enumerate(results):
        run = RunFolder.adopt(folder / str(seed))
        metrics = MetricsFile(run.metrics_path)
        for number, loss in enumerate(losses):
            ended = EpochEnded(metrics=epoch(number, eval={"loss": loss, "accuracy": 0.9}), reason="")
            metrics.observe(window_done(0, 1), (ended,))
        metrics.close()
        arms.append(Arm(name=str(seed), overrides=(f"trainer.seed={seed}",), status=result.status, folder=str(seed),
                        result=result))  # fmt: skip
    SweepFolder(folder).write_comparison(comparison_json(compare(arms)), "")


def rows(folder: Path) -> dict[str, list[str]]:
    lines = [line.strip("|").split("|") for line in page([folder]).splitlines() if line.startswith("| ")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def test_every_cell_is_worked_out_from_the_folders(tmp_path: Path) -> None:
    (tmp_path / "section.json").write_bytes(msgspec.json.encode(SECTION))
    alone = {"eval": {"loss": 0.2, "accuracy": 0.9}, "wall_seconds": 10.0, "utilisation": 1.0}
    swept(tmp_path / "solo", run_result(**alone), run_result(**alone), losses=(0.5, 0.2))
    fast = {"eval": {"loss": 0.18, "accuracy": 0.92}}
    failed = msgspec.structs.replace(run_result(), status="failed")
    swept(tmp_path / "cpu_async", run_result(**fast, wall_seconds=4.0), run_result(**fast, wall_seconds=5.0),
          losses=(0.21, 0.18))  # fmt: skip
    swept(tmp_path / "easgd", failed, failed, losses=(0.5,))
    (tmp_path / "ddp").mkdir()
    for seed in SECTION.seeds:
        curve = tuple(
            DdpEpoch(loss=loss, wall_seconds=8.0, eval={"loss": loss, "accuracy": 0.9}) for loss in (1.0, 0.5)
        )
        run = DdpRun(seed=seed, speeds=(1.0, 0.4), samples=1600, epochs=curve)
        (tmp_path / "ddp" / f"{seed}.json").write_bytes(msgspec.json.encode(run))
    found = rows(tmp_path)
    quality = ["90.00 ± 0.00", "0.2000 ± 0.0000", "0.40 ± 0.00"]
    assert found["solo"][:6] == [*quality, "10.00 ± 0.00", "1.00 ± 0.00", "0.50"]
    assert found["cpu_async"][3:6] == ["4.50 ± 0.71", "2.25 ± 0.35", "0.25"], "0.21 is within 5 % of 0.2"
    assert found["ddp"][3:8] == ["16.00 ± 0.00", "0.62 ± 0.00", "never (0 of 2 seeds)", "1.00 ± 0.00", "200 ± 0"]
    assert found["easgd (2 of 2 did not end well)"][:3] == ["-", "-", "-"]
    assert found["cpu_async"][6:8] == ["2.70 ± 0.42", "704 ± 0"], "0.375 in 4 or 5 s beside 0.5 in 16 s"
    assert "cpu_sync" not in found, "it was not run"


def test_folders_of_other_seeds_continue_a_section_and_other_jobs_begin_one(tmp_path: Path) -> None:
    sections = {
        "a": SECTION,
        "b": msgspec.structs.replace(SECTION, seeds=(2,), load=9.0),
        "c": msgspec.structs.replace(SECTION, cluster="shared_gpu", gpu="NVIDIA X"),
    }
    for name, section in sections.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "section.json").write_bytes(msgspec.json.encode(section))
        swept(tmp_path / name / "solo", *(run_result() for _ in section.seeds), losses=(0.2,))
    text = page([tmp_path / name for name in sections])
    assert text.count("\n## ") == 2
    assert "2 CPU ranks at 1, 0.4 of their own speed, seeds 0, 1, 2." in text
    assert "load average 9" in text
    assert "two ranks sharing one NVIDIA X, seeds 0, 1." in text


def test_the_page_says_what_was_measured_where(tmp_path: Path) -> None:
    (tmp_path / "section.json").write_bytes(msgspec.json.encode(SECTION))
    swept(tmp_path / "solo", run_result(), losses=(0.2,))
    text = page([tmp_path])
    assert "## digits, mlp, 2 epochs, cluster=rehearsal" in text
    assert "Measured on 2 cores of a|b CPU, torch 2.13.0" in text
    assert "2 CPU ranks at 1, 0.4 of their own speed, seeds 0, 1." in text
    assert "Other work" not in text
    busy = msgspec.structs.replace(SECTION, load=7.0, more=("trainer.batch_size=8",))
    (tmp_path / "section.json").write_bytes(msgspec.json.encode(busy))
    assert "All of them with `trainer.batch_size=8`." in page([tmp_path])
    assert "Other work went on (load average 7): wall seconds and rates are disturbed." in page([tmp_path])


def test_what_scripts_on_gpus_have_printed_follows_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "section.json").write_bytes(msgspec.json.encode(SECTION))
    swept(tmp_path / "solo", run_result(), losses=(0.2,))
    printed = tmp_path / "ddp.txt"
    printed.write_text("`python -m tests.gpu.ddp` on 2 x NVIDIA H200, torch 2.11.0\nresnet20: flodl 3 | DDP 4\n")
    text = page([tmp_path], [printed])
    assert text.endswith(
        "\n\n## `python -m tests.gpu.ddp` on 2 x NVIDIA H200, torch 2.11.0\n\n```\nresnet20: flodl 3 | DDP 4\n```\n"
    )


def test_a_ddp_that_diverged_is_shown_as_such(tmp_path: Path) -> None:
    (tmp_path / "section.json").write_bytes(msgspec.json.encode(SECTION))
    swept(tmp_path / "solo", run_result(), losses=(0.2,))
    (tmp_path / "ddp").mkdir()
    lost = DdpRun(seed=0, speeds=(1.0, 0.4), samples=0, epochs=())
    (tmp_path / "ddp" / "0.json").write_bytes(msgspec.json.encode(lost))
    row = next(line for line in page([tmp_path]).splitlines() if line.startswith("| ddp"))
    assert row.startswith("| ddp (1 of 1 did not end well) | - | - |")
