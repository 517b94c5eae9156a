"""flodl as a wheel, made from the files that run right now: what is pushed to a host is what this machine has.

No build tool and no registry is asked: a wheel is a zip archive of the package and what its installer wrote about it.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from flodl.errors import NotReady

__all__ = ["own_wheel", "write_wheel"]

PACKAGES = ("flodl", "flodl_launch", "hydra_plugins.flodl_ssh")
SUFFIXES = {".py", ".yaml", ".typed", ".json"}


def own_wheel(place: Path) -> Path:
    """Write flodl's wheel into a folder. Raises NotReady where this flodl was never installed."""
    try:
        found = distribution("flodl")
    except PackageNotFoundError as error:
        raise NotReady("this flodl runs from a folder and is not installed, so its dependencies are not known: "
                       "python -m pip install -e . in that folder") from error  # fmt: skip
    return write_wheel(place, "flodl", found.version, dict(_files(found)))


def write_wheel(place: Path, name: str, version: str, files: dict[str, bytes]) -> Path:
    """A pure wheel of these files. The metadata must be among them."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: flodl\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    wheel = place / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return wheel


def _files(found: Distribution) -> Iterator[tuple[str, bytes]]:
    info = f"flodl-{found.version}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        text = found.read_text(name)
        if text is not None:
            yield f"{info}/{name}", text.encode()
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in () if spec is None else spec.submodule_search_locations or ():
            yield from _tree(Path(folder), package.replace(".", "/"))
    conf = Path(__file__).resolve().parents[2] / "conf"  # in a checkout it lies beside the package
    if conf.is_dir() and not (conf.parent / "flodl" / "conf").is_dir():
        yield from _tree(conf, "flodl/conf")


def _tree(folder: Path, prefix: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in SUFFIXES:
            yield f"{prefix}/{path.relative_to(folder)}", path.read_bytes()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
