"""What a run has left, as tensors: its parameters and its buffers, under the model's own names."""

from __future__ import annotations

from torch import Tensor

from flodl.engine.tensorfile import tensors_of
from flodl.errors import RunLost
from flodl.record.bundle_folder import Bundle
from flodl.record.bundle_names import BUFFER
from flodl.record.folder import RunFolder
from flodl.spec.checkpoint import CheckpointConfig

__all__ = ["trained"]


def trained(
    folder: RunFolder, config: CheckpointConfig, *, needed: bool = True
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of the newest save, on the CPU. needed: raises RunLost where nothing was saved; else a loop
    of the user's own has returned what there is, and all of it counts as parameters."""
    bundles = folder.bundles(config).bundles()
    has_weights = folder.weights_path.exists()
    if not needed:
        return (tensors_of(folder.weights_path.read_bytes()) if has_weights else {}), {}
    if not has_weights or not bundles:
        raise RunLost(f"{folder.path}: the run has saved no weights; its result.json says why")
    tensors = tensors_of(folder.weights_path.read_bytes())
    held = _buffers(bundles[0])
    return (
        {name: tensor for name, tensor in tensors.items() if name not in held},
        {name: tensor for name, tensor in tensors.items() if name in held},
    )


def _buffers(bundle: Bundle) -> set[str]:
    path = bundle.path("model")
    assert path is not None  # what has none is no bundle
    return {name.removeprefix(BUFFER) for name in tensors_of(path.read_bytes()) if name.startswith(BUFFER)}
