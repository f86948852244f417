"""Detectors of rows on the command line, in ONNX Runtime and over HTTP give the verdicts of Python."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

import macs
from clustered_features import BIAS, WEIGHT, activations, logits_of
from command import refused, run
from macs.detector.inspection import inspect
from macs.serve.app import create_app

TRAIN, LABELS = activations(300, seed=3)
VALIDATION, TRUE = activations(200, seed=6)
NEW = activations(60, seed=7)[0].astype(np.float32)
NEW[::3] *= 4
BROKEN = NEW.copy()
BROKEN[5, 2] = np.nan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features, logits and labels in files, and a detector of both, saved and exported."""
    folder = tmp_path_factory.mktemp("rows")
    np.savez(folder / "train.npz", features=TRAIN, logits=logits_of(TRAIN), labels=LABELS)
    np.savez(folder / "val.npz", features=VALIDATION, logits=logits_of(VALIDATION), labels=TRUE)
    np.savez(folder / "new.npz", features=BROKEN, logits=logits_of(NEW))
    np.savez(folder / "head.npz", weight=WEIGHT, bias=BIAS)
    np.save(folder / "val.npy", VALIDATION)
    np.save(folder / "train.npy", TRAIN)
    files = ("--features", folder / "val.npz", "--fit-on", folder / "train.npz")
    run("calibrate", *files, "--score", "energy+knn", "--keep", 0.9, "--out", folder / "d.safetensors")
    run("export", folder / "d.safetensors", folder / "d.onnx")
    return folder


@pytest.fixture(scope="module")
def expected() -> macs.detector.Verdicts:
    detector = macs.FeatureDetector("energy+knn").fit(TRAIN, logits=logits_of(TRAIN), labels=LABELS)
    detector.calibrate(VALIDATION, logits=logits_of(VALIDATION), labels=TRUE, keep=0.9)
    return detector.predict(BROKEN, logits=logits_of(NEW))


def same(rows: list[dict[str, Any]], expected: macs.detector.Verdicts) -> None:
    for place, row in enumerate(rows):
        if place == 5:
            assert "NaN, infinite" in row["reason"] and row.get("is_ood") is None
        else:
            assert (row["index"], row["is_ood"]) == (expected.index[place], expected.is_ood[place])
            assert row["confidence"] == pytest.approx(expected.confidence[place], abs=1e-4)
            assert row["p_value"] == pytest.approx(expected.p_value[place], abs=1e-6)


@pytest.mark.parametrize("file", ["d.safetensors", "d.onnx"])
def test_the_command_line_gives_the_same_verdicts(
    file: str, folder: Path, expected: macs.detector.Verdicts, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run("predict", folder / "new.npz", "--detector", folder / file, "--json", expect=1)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[4]["path"].endswith("new.npz[4]") and len(rows) == 60
    same(rows, expected)


def test_the_exported_file_is_run_without_torch(folder: Path, expected: macs.detector.Verdicts) -> None:
    code = f"""
import sys, numpy as np, macs
rows = np.load({str(folder / "new.npz")!r})
print(macs.FeatureRuntime({str(folder / "d.onnx")!r}).predict(rows).is_ood.astype(int).tolist())
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == expected.is_ood.astype(int).tolist(), done.stderr


def test_onnx_runtime_alone_gives_a_row_that_is_not_finite_no_confidence(folder: Path) -> None:
    session = macs.FeatureRuntime(folder / "d.onnx").session
    inputs = {"features": BROKEN, "logits": logits_of(NEW).astype(np.float32)}
    confidence, is_ood = session.run(["confidence", "is_ood"], inputs)
    assert np.flatnonzero(np.isnan(confidence)).tolist() == [5] and is_ood[5]


@pytest.mark.parametrize(
    ("score", "given"),
    [
        ("vim", {"features": TRAIN}),
        ("knn", {"features": TRAIN}),
        ("msp", {"probabilities": np.random.default_rng(1).dirichlet(np.ones(5), 200)}),
        ("energy", {"logits": logits_of(TRAIN)}),
    ],
)
def test_each_kind_of_input_is_exported(score: str, given: dict[str, np.ndarray], tmp_path: Path) -> None:
    head = (WEIGHT, BIAS) if score == "vim" else None
    half = {name: rows[::2] for name, rows in given.items()}
    detector = macs.FeatureDetector(score, head).fit({name: rows[1::2] for name, rows in given.items()})
    detector.calibrate(half).export(tmp_path / "d.onnx")
    runtime = macs.FeatureRuntime(tmp_path / "d.onnx")
    ours, theirs = detector.predict(given), runtime.predict(given)
    assert theirs.confidence == pytest.approx(ours.confidence, abs=1e-4)
    assert theirs.index.tolist() == ours.index.tolist()
    assert {port.name for port in inspect(tmp_path / "d.onnx").inputs} == {*given, "threshold"}
    with pytest.raises(macs.MacsError, match="judges rows of .*, not images; its classes are FeatureDetector"):
        macs.Runtime(tmp_path / "d.onnx")


def test_inspection_names_the_arrays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    run("inspect", folder / "d.safetensors")
    text = capsys.readouterr().out
    assert re.search(r"rows +features \(N x 13\) and logits \(N x 4\)", text)
    assert "from 150 calibration rows" in text and "image" not in text and "probabilities" not in text


def test_a_head_gives_the_logits(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--features", folder / "val.npy", "--fit-on", folder / "train.npy", "--head", folder / "head.npz")
    capsys.readouterr()
    run("calibrate", *files, "--score", "vim", "--out", tmp_path / "d.safetensors", "--json")
    record = json.loads(capsys.readouterr().out)
    by_hand = macs.FeatureDetector("vim", (WEIGHT, BIAS)).fit(TRAIN).calibrate(VALIDATION)
    assert record["thresholds"][0]["value"] == by_hand.calibrated.thresholds[0].value and record["unit"] == "rows"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--features", "val.npz", "--images", "digits"), "leave --images out"),
        (("--features", "val.npz", "--score", "knn"), "name a file of them with --fit-on"),
        (("--features", "val.npz", "--score", "auto"), "--score auto chooses a score by looking at images"),
        (("--features", "val.npz", "--logits", "val.npz"), "both hold features"),
        (("--head", "head.npz"), "give these too, with --features"),
        (("--logits", "none.npy"), "There is no file of features or logits"),
    ],
)
def test_mistakes_get_one_sentence(
    options: tuple[str, ...], words: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [folder / option if option.endswith((".npz", ".npy")) else option for option in options]
    assert words in refused(capsys, "calibrate", *given, "--out", tmp_path / "d.safetensors")
    assert not (tmp_path / "d.safetensors").exists()


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with TestClient(create_app(folder / "d.onnx"), base_url="http://localhost") as client:
        yield client


def test_the_service_takes_arrays_as_json(client: TestClient, expected: macs.detector.Verdicts) -> None:
    features = [[None if np.isnan(value) else value for value in row] for row in BROKEN.tolist()]
    answer = client.post("/v1/predict", json={"features": features, "logits": logits_of(NEW).tolist()})
    assert answer.status_code == 200
    same(answer.json()["rows"], expected)


def test_the_service_speaks_the_open_inference_protocol(client: TestClient, expected: macs.detector.Verdicts) -> None:
    arrays = {"features": ("FP32", NEW[6:]), "logits": ("FP64", logits_of(NEW)[6:])}
    tensors: list[dict[str, Any]] = [
        {"name": name, "datatype": kind, "shape": [*rows.shape]} for name, (kind, rows) in arrays.items()
    ]
    plain = [{**tensor, "data": arrays[tensor["name"]][1].ravel().tolist()} for tensor in tensors]
    sizes = [{**tensor, "parameters": {"binary_data_size": arrays[tensor["name"]][1].nbytes}} for tensor in tensors]
    head = json.dumps({"inputs": sizes}).encode()
    as_json = client.post("/v2/models/d/infer", json={"inputs": plain})
    binary = client.post(
        "/v2/models/d/infer",
        content=head + b"".join(rows.tobytes() for _, rows in arrays.values()),
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    for answer in (as_json, binary):
        outputs = {output["name"]: output["data"] for output in answer.json()["outputs"]}
        assert outputs["is_ood"] == expected.is_ood[6:].tolist()
        assert outputs["p_value"] == pytest.approx(expected.p_value[6:].tolist(), abs=1e-6)
    described = client.get("/v2/models/d").json()["inputs"]
    assert [(tensor["name"], tensor["shape"]) for tensor in described] == [("features", [-1, 13]), ("logits", [-1, 4])]
    assert client.get("/v1/drift").json()["images"] > 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"features": [[1.0] * 13]}, "A JSON body must be"),
        ({"features": [[1.0] * 13], "logits": [[1.0] * 3]}, "has 3 logits per row, but the detector was fitted to 4"),
        ({"features": [[1.0] * 13, [1.0]], "logits": [[1.0] * 4] * 2}, "lists of numbers, all equally long"),
        ({"features": [["a"] * 13], "logits": [[1.0] * 4]}, "lists of numbers, all equally long"),
        ({"features": [], "logits": []}, "have no rows; give one at least"),
        ({"images": []}, "A JSON body must be"),
    ],
)
def test_the_service_refuses_other_arrays(client: TestClient, body: dict[str, Any], words: str) -> None:
    answer = client.post("/v1/predict", json=body)
    assert answer.status_code == 422 and words in answer.json()["error"]


def test_the_service_refuses_json_of_more_values_than_rows_have_before_parsing_it(client: TestClient) -> None:
    body = b'{"features": [' + b"[]," * 200_000 + b"[]]}"
    answer = client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 413 and "may hold 101,088 values" in answer.json()["error"]  # and 64 rows of 13 + 4


@pytest.mark.parametrize("field", ["name", "datatype", "shape", "data", "parameters"])
@pytest.mark.parametrize("value", [None, 5, "x", ["features"], {"a": 1}, [[]]])
def test_a_tensor_with_a_strange_field_is_refused(client: TestClient, field: str, value: object) -> None:
    tensor = {"name": "features", "datatype": "FP32", "shape": [1, 13], "data": [0.0] * 13, field: value}
    answer = client.post("/v2/models/d/infer", json={"inputs": [tensor]})
    assert answer.status_code == 422, answer.text  # the logits are missing anyway
