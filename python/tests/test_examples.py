import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize(("name", "needs"), [("fit", None), ("own_loop", None), ("lightning_module", "lightning")])
def test_examples_run(core, monkeypatch, capsys, name, needs):
    if needs:
        pytest.importorskip(needs)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "finished: " in capsys.readouterr().out
