"""Every command for an exported detector, in an environment that holds the packages of runtime.txt and no others.

Run by `make test-runtime` with that environment: python without_torch.py FOLDER, which exported_files.py wrote.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FORBIDDEN = ("torch", "scipy", "safetensors", "onnx", "lightning_fabric", "tomli_w", "requests", "matplotlib")


def macs(folder: Path, *arguments: str, expect: int = 0) -> str:
    """What a command prints; standard error where it is to fail."""
    command = [sys.executable, "-m", "macs", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == expect, f"{' '.join(arguments)}: {done.returncode}\n{done.stderr}"
    return done.stderr if expect else done.stdout


def close(found: Any, expected: Any) -> bool:
    """Whether two values of JSON are the same, with numbers equal to 1e-4."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, float):
        return abs(found - expected) <= 1e-4 * max(1.0, abs(expected))
    return bool(found == expected)


def check(folder: Path, name: str, expected: dict[str, Any]) -> None:
    exported = ("--detector", f"{name}.onnx")
    lines = macs(folder, "predict", "test", "noise.npy", *exported, "--fdr", "0.1", "--json").splitlines()
    rows = [json.loads(line) for line in lines]
    for row, other in zip(rows, expected["rows"], strict=True):
        assert row["index"] == other["index"] and close(row["confidence"], other["confidence"]), (row, other)
        low, high = other["p_range"]
        assert low - 1e-6 <= row["p_value"] <= high + 1e-6, (row, other)
    ascending = sorted(row["p_value"] for row in rows)  # Benjamini and Hochberg, by hand
    called = [p for place, p in enumerate(ascending, 1) if p <= 0.1 * place / len(rows) + 1e-6]
    assert [row["is_ood"] for row in rows] == [row["p_value"] <= called[-1] for row in rows]
    assert 0 < sum(row["is_ood"] for row in rows) < len(rows)

    measured = ("--id", "test", "--ood", "noise.npy", "--json")
    evaluation = json.loads(macs(folder, "evaluate", *exported, *measured))
    assert close({key: evaluation[key] for key in ("ood", "mean")}, expected["evaluation"])

    report = json.loads(macs(folder, "report", *exported, *measured, "--out", f"{name}.html"))
    assert report["mean"] == evaluation["mean"]
    assert (folder / f"{name}.html").read_text(encoding="utf-8").startswith("<!doctype html>")

    for suffix in ("onnx", "safetensors"):
        inspection = json.loads(macs(folder, "inspect", f"{name}.{suffix}", "--json"))
        assert inspection["calibration"] == expected["calibration"]
    sentence = macs(folder, "predict", "test", "--detector", f"{name}.safetensors", expect=2)
    assert "run by torch, which is not installed" in sentence and "Traceback" not in sentence


def main(folder: Path) -> None:
    present = [name for name in FORBIDDEN if find_spec(name) is not None]
    assert not present, f"the environment must not have {present}"
    examination = json.loads(macs(folder, "doctor", "--json"))
    assert examination["torch"].startswith("not installed") and examination["onnxruntime"]["providers"]
    for name, expected in json.loads((folder / "expected.json").read_text(encoding="utf-8")).items():
        check(folder, name, expected)
    print("doctor works, and predict, evaluate, report and inspect agree with PyTorch, without it.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
