"""A misspelt import path is told by the name that is wrong, read from files; whatever may be right passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl.probe.misspelt import misspelling

WRONG = {
    "project.nets.Wyde": "project/nets.py has no Wyde; did you mean Wide?",
    "project.nets.Other": "project/nets.py has no Other; known here: Deep, Wide",
    "project.nest.Wide": "project/ has no nest; did you mean nets?",
    "projct.nets.Wide": "there is no module projct here; did you mean project?",
    "torhc.nn.Linear": "there is no module torhc here; did you mean torch?",
    "whole.nets.Wyde": "whole/nets.py has no Wyde; did you mean Wide?",
    "whole.Wyde": "whole/ has no Wyde; did you mean Wide?",
    "single.Nett": "single.py has no Nett; did you mean Net?",
    "flodl.models.mlp.MPL": "flodl/models/mlp.py has no MPL; did you mean MLP?",
    "flodl.modles.mlp.MLP": "flodl/ has no modles; did you mean models?",
}
PASSING = {
    "a class": "project.nets.Wide",
    "a method, inherited or not": "project.nets.Wide.from_nothing",
    "what a block binds": "project.nets.Deep",
    "what a line binds": "project.nets.narrow",
    "what is brought in": "project.nets.Linear",
    "a class that has the name of its file": "whole.Tall.build",
    "names that are made while it runs": "dynamic.Anything",
    "names that a module gives on demand": "lazy.Anything",
    "names of another module, all of them": "starred.Anything",
    "a file that cannot be read: its import tells more": "broken.Net",
    "a compiled module": "fast.Net",
    "an allowed package that may be on the hosts alone": "timm.models.No",
    "what is installed: trust is what is missing": "msgspec.Strukt",
    "the standard library: trust is what is missing": "os.sistem",
    "a folder that an installed package goes before": "pytest.Nothing",
    "one of flodl's own": "flodl.models.mlp.MLP",
    "one of flodl's own that comes on demand": "flodl.Trainer",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "project/nets.py": "raise SystemExit('imported')\nfrom torch.nn import Linear\nclass Wide: pass\n"
                           "try:\n    narrow: type = Wide\nexcept Exception:\n    class Deep: pass\n",
        "whole/__init__.py": "from .Tall import Tall\nfrom .nets import Wide\n",
        "whole/Tall.py": "class Tall: pass\n",
        "whole/nets.py": "class Wide: pass\n",
        "single.py": "class Net: pass\nprint('\\d')\n",
        "dynamic.py": "for name in 'ab': globals()[name] = object\n",
        "lazy.py": "def __getattr__(name): return object\n",
        "starred.py": "from single import *\n",
        "broken.py": "class Net(:\n",
        "fast.cpython-311-x86_64-linux-gnu.so": "\0",
        "pytest/mine.py": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("target", WRONG)
def test_a_path_that_leads_nowhere_is_told_by_the_name_that_is_wrong(target: str, folder: Path) -> None:
    assert "; ".join(misspelling(target, folder) or ()) == WRONG[target]


def test_where_nothing_is_near_the_way_to_what_only_hosts_have_is_told(folder: Path) -> None:
    constraint, remedy = misspelling("nobody.has.This", folder) or ("", "")
    assert constraint == "there is no module nobody here"
    assert "nobody.py or nobody/" in remedy
    assert "'trusted_targets=[nobody.has.This]'" in remedy


@pytest.mark.parametrize("case", PASSING)
def test_whatever_may_be_right_passes(case: str, folder: Path) -> None:
    assert misspelling(PASSING[case], folder) is None
