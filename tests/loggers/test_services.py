"""What each service holds afterwards, read back with its own package. One that is not installed is skipped."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flodl.loggers.mlflow import Mlflow, spelt
from flodl.loggers.tensorboard import TensorBoard
from flodl.loggers.wandb import Wandb
from flodl.ports import LoggedArm, LoggedRun, LoggedSweep

# A service's package may warn of others that it uses.
pytestmark = pytest.mark.filterwarnings("ignore")

OWN = "train/größe/λ [x]=1"
PARAMETERS = {"optim.lr": 0.1, "trainer.max_grad_norm": None, "meta.enabled": True, "model._target_": "a.größe"}
FIRST, LATE = {"train/loss": 0.5, OWN: 1.5, "rank/0/idle_ms": 3.0}, {"eval/accuracy": 0.75}
RESULT = {"samples_done": 200.0, "eval/accuracy": 0.8}


def needs(logger: Any) -> None:
    missing = [name for name in logger.requires if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'flodl[{logger.extra}]'")


def logged(folder: Path, make: Any) -> None:
    """A run and the comparison of its sweep. The second figures come late, behind others of a later step."""
    needs(make())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = folder / "0 größe"
        run.mkdir()
        logger = make()
        logger.begin(LoggedRun(name="a/b größe", run_id="r", folder=str(run), sweep=str(folder), parameters=PARAMETERS))
        logger.log(FIRST, 200, time.time())
        logger.log(LATE, 100, time.time())
        logger.end("done", RESULT)
        arms = (LoggedArm(name="0", overrides=("x=1",), status="done", folder=str(run), figures=RESULT),
                LoggedArm(name="1", overrides=("x=2",), status="skipped"))  # fmt: skip
        make().compare(LoggedSweep(name="sweep 1", folder=str(folder), text="| größe |", arms=arms))


def test_tensorboard_holds_figures_parameters_and_the_comparison(tmp_path: Path) -> None:
    logged(tmp_path, TensorBoard)
    found = _events(tmp_path / "0 größe" / "tensorboard")
    assert {name: found.Scalars(name)[0].value for name in FIRST} == FIRST
    assert [(e.step, e.value) for e in found.Scalars("eval/accuracy")] == [(100, 0.75)]
    assert found.Scalars("result/eval/accuracy")[0].value == pytest.approx(0.8)
    assert _hparams(found) == {"optim.lr": 0.1, "trainer.max_grad_norm": "null", "meta.enabled": True,
                               "model._target_": "a.größe"}  # fmt: skip
    sweep = _events(tmp_path / "tensorboard")
    assert sweep.Tensors("comparison")[0].tensor_proto.string_val == ["| größe |".encode()]
    assert [(e.step, e.value) for e in sweep.Scalars("comparison/samples_done")] == [(0, 200.0)]


def test_in_an_absolute_folder_of_tensorboards_every_run_and_every_comparison_has_its_own(tmp_path: Path) -> None:
    for number in "12":
        (tmp_path / number / "sweep").mkdir(parents=True)
        logged(tmp_path / number / "sweep", lambda: TensorBoard(folder=str(tmp_path / "all")))
    held = sorted(path.name for path in (tmp_path / "all").iterdir())
    assert held == ["1-sweep-0 größe-r", "2-sweep-0 größe-r", *(f"{tmp_path.name}-{number}-sweep" for number in "12")]
    assert _events(tmp_path / "all" / held[0]).Scalars("eval/accuracy")[0].value == 0.75


def _events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def _hparams(found: Any) -> Mapping[str, Any]:
    from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

    content = found.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    held = parse_session_start_info_plugin_data(content).hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in held.items()}


@pytest.mark.parametrize("uri", ["sqlite:///store/größe.db", "runs"])
def test_mlflow_holds_figures_parameters_and_the_comparison(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logged(tmp_path, lambda: Mlflow(uri=uri))
    from mlflow.tracking import MlflowClient

    place = f"sqlite:///{tmp_path}/store/größe.db" if ":" in uri else (tmp_path / uri).as_uri()
    client = MlflowClient(tracking_uri=place)
    runs = client.search_runs([client.get_experiment_by_name("flodl").experiment_id])
    by_name = {run.info.run_name: run for run in runs}
    run, sweep = by_name["a/b größe"], by_name["sweep 1"]
    assert {name: run.data.metrics[spelt(name)] for name in (FIRST | LATE)} == FIRST | LATE
    assert (run.data.params["optim.lr"], run.data.params["meta.enabled"]) == ("0.1", "true")
    assert (run.info.status, run.data.tags["mlflow.parentRunId"]) == ("FINISHED", sweep.info.run_id)
    assert Path(client.download_artifacts(sweep.info.run_id, "comparison.md")).read_text() == "| größe |"
    assert sweep.data.metrics["samples_done"] == 200.0


def test_a_name_that_mlflow_would_refuse_is_spelt_so_that_it_takes_it_and_none_become_one() -> None:
    assert spelt("eval/größe") == "eval/größe"
    assert spelt("λ [x]=1") == "λ :5b:x:5d::3d:1"
    names = ["a//b", "a/b", "../a", "/a", "a/", ".", "..", "a:b", "a[b", "a]b"]
    assert len({spelt(name) for name in names}) == len(names)
    assert spelt("a//b") == "a:2f::2f:b"


def test_wandb_holds_figures_parameters_and_the_comparison_offline(tmp_path: Path) -> None:
    logged(tmp_path, Wandb)
    run = _stored(tmp_path / "0 größe")
    for name in (*FIRST, *LATE, *PARAMETERS, "result/eval/accuracy"):
        assert name.encode() in run or name.encode("ascii", "backslashreplace").replace(b"\\x", b"\\u00") in run, name
    assert "a/b größe".encode() in run
    assert b"samples_done" in _stored(tmp_path)


def _stored(folder: Path) -> bytes:
    """Everything in an offline run's files."""
    return b"".join(path.read_bytes() for path in (folder / "wandb").rglob("*") if path.is_file())
