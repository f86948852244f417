"""The tutorial, followed to its end."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from follow_tutorial import follow


@pytest.mark.docs
def test_the_tutorial_leads_to_a_detector_that_tells_digits_from_textures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert follow() >= 12
    assert (tmp_path / "runs" / "tuned" / "report.html").is_file()
    tables = re.findall(r"^(ID|OOD) +\S+ +\S+ +\S+ +photos/(\S+)-\d\.png", output.getvalue(), flags=re.MULTILINE)
    torch_rows, onnx_rows = tables[: len(tables) // 2], tables[len(tables) // 2 :]
    assert torch_rows == onnx_rows and len(torch_rows) == 5
    assert all(verdict == "OOD" for verdict, name in torch_rows if name in ("digits-textures", "digits-faces"))
