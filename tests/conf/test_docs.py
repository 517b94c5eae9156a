"""What the documents say to type can be typed, and the errors that they explain are the ones that are told."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose
from omegaconf import DictConfig, ListConfig

from flodl.tasks import TASKS
from tests.conf.composing import CONF

pytestmark = pytest.mark.usefixtures("composing")

ROOT = CONF.parent
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"])
GROUPS = {folder.name for folder in CONF.iterdir() if folder.is_dir()}
OWN = {"mine", "desk", "lab", "own_model", "lines"}  # what a reader has made before
COMMAND = re.compile(r"(?:^|`)(?:python -m flodl|flodl) (?P<words>[^`#\n]*)", re.MULTILINE)


def commands() -> list[tuple[str, tuple[str, ...]]]:
    """(page, words) of everything that is to be typed; two blanks part it from its explanation."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for page in PAGES:
        for match in COMMAND.finditer(page.read_text()):
            typed = re.split(r"\s{2,}", match["words"].strip())[0]
            words = tuple(word for word in shlex.split(typed) if "..." not in word)
            if any("=" in word for word in words):
                found[page.name, words] = None
    return list(found)


@pytest.mark.parametrize(("page", "words"), commands(), ids=lambda value: value if isinstance(value, str) else None)
def test_what_is_to_be_typed_names_choices_and_keys_that_there_are(page: str, words: tuple[str, ...]) -> None:
    given = dict(word.lstrip("+").split("=", 1) for word in words if "=" in word)
    task = given.get("task", "train")
    assert task in TASKS, f"{page}: task={task}"
    loggers = [name for name in choices(given.get("logger", "")) if name not in OWN]
    tree = compose("config", [f"task={task}", f"logger=[{','.join(loggers)}]"])
    for key, value in given.items():
        if key in GROUPS:
            files = {path.stem for path in (CONF / key).glob("*.yaml")}
            unknown = [choice for choice in choices(value) if choice not in files | OWN]
            assert unknown == [], f"{page}: {key}={value}"
        elif not key.startswith(("hydra.", "hydra/")):
            assert _is_key(tree, key), f"{page}: there is no key {key}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_map_that_is_to_be_typed_is_in_quotes_for_bash_would_part_it(page: Path) -> None:
    """In a line of commands or in a sentence; `key: {...}` and `returns {...}` are no words of a command."""
    bare = re.sub(r"'[^'\n]*'", "", re.sub(r"```(?:python|yaml)\n.*?```", "", page.read_text(), flags=re.DOTALL))
    assert re.findall(r"[\w.]+=\{.*", bare) == []


def choices(text: str) -> list[str]:
    """One choice, or several: of a sweep, or at once."""
    return [choice for choice in text.strip("[]").split(",") if choice]


def _is_key(tree: object, key: str) -> bool:
    """True where the composed tree has this key, also one without a value yet; items of lists are not looked into."""
    for name in key.split("."):
        if isinstance(tree, ListConfig):
            return True
        if not isinstance(tree, DictConfig) or name not in tree.keys():  # noqa: SIM118  `in` does not see a ???
            return False
        tree = tree._get_node(name)
    return True


def explained() -> list[str]:
    """The errors in the table of docs/clusters.md."""
    table = (ROOT / "docs" / "clusters.md").read_text().partition("| it says |")[2]
    return [text for row in table.splitlines() if row.startswith("| `") for text in
            re.findall(r"`([^`]+)`", row.split("|")[1])]  # fmt: skip


@pytest.fixture(scope="module")
def told() -> str:
    """All texts of the sources, joined as the reader would see them."""
    files = [*(ROOT / "flodl").rglob("*.py"), *(ROOT / "launch").rglob("*.py")]
    text = "\n".join(path.read_text() for path in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


@pytest.mark.parametrize("text", explained())
def test_an_error_that_is_explained_is_one_that_is_told(text: str, told: str) -> None:
    parts = [part.strip() for part in re.split(r"\.\.\.|\d+|\bhas\b", text)]
    for part in (part for part in parts if len(part) > 2):
        assert part in told, f"{part!r} is told nowhere"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http:", "https:")):
            continue
        file, _, anchor = target.partition("#")
        place = page if not file else (page.parent / file)
        assert place.exists(), f"{page.name}: {target}"
        if anchor and place.suffix == ".md":
            heads = re.findall(r"^#+ (.+)$", place.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}, target
