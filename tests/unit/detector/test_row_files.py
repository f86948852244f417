"""Rows in files, each written by the package that users write it with."""

import csv
import pickle
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pytest

import macs
from clustered_features import activations
from macs.core.errors import MacsError
from macs.detector.row_files import PART, head_in, rows_in, tables_in

FEATURES, LABELS = activations(40, seed=3)


@pytest.fixture(scope="module")
def detector() -> macs.FeatureDetector:
    return macs.FeatureDetector("knn").fit(activations(100, seed=1)[0]).calibrate(activations(100, seed=2)[0])


def written(path: Path) -> Path:
    """The features in a file of this kind."""
    if path.suffix == ".npy":
        np.save(path, FEATURES)
    elif path.suffix == ".npz":
        np.savez_compressed(path, features=FEATURES, labels=LABELS)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([[f"c{i}" for i in range(FEATURES.shape[1])], *FEATURES.tolist()])
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"id": ["x"] * 40, "features": FEATURES.tolist(), "label": LABELS}), path)
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_a_file_gives_the_verdicts_of_its_array(suffix: str, detector: macs.FeatureDetector, tmp_path: Path) -> None:
    path = written(tmp_path / f"rows{suffix}")
    rows, verdicts = list(detector.predict_files(path)), detector.predict(FEATURES)
    assert [row.confidence for row in rows] == pytest.approx(verdicts.confidence.tolist(), abs=1e-6)
    assert [row.is_ood for row in rows] == verdicts.is_ood.tolist()
    assert rows[7].path == f"{path}[7]"


def test_a_long_table_is_read_in_parts(tmp_path: Path) -> None:
    with (tmp_path / "long.csv").open("w") as file:
        print("a,b", file=file)
        file.writelines(f"{i},1\n" for i in range(PART + 5))
    parts = list(tables_in(tmp_path / "long.csv"))
    assert [len(part) for part in parts] == [PART, 5] and parts[1].features[:, 0].tolist() == [*range(PART, PART + 5)]
    assert rows_in({"features": tmp_path / "long.csv"}).features.shape == (PART + 5, 2)


def test_columns_of_files_are_matched_by_their_names(tmp_path: Path) -> None:
    """They were matched by position, so that a detector calibrated from files judged columns as if they were others."""
    names = ["height", "width", "depth"]
    rows = np.random.default_rng(0).normal([[0, 50, 900]], 1, (200, 3))

    def table(name: str, order: list[int], called: list[str] = names) -> Path:
        lines = [",".join(called[i] for i in order), *(",".join(str(row[i]) for i in order) for row in rows)]
        (tmp_path / name).write_text("\n".join(lines))
        return tmp_path / name

    train, turned = table("train.csv", [0, 1, 2]), table("turned.csv", [2, 0, 1])
    known = rows_in({"features": train})
    detector = macs.FeatureDetector(macs.scores.get("knn", k=3, normalise=False)).fit(known.subset(np.arange(100)))
    detector.calibrate(rows_in({"features": turned}).subset(np.arange(100, 200)))
    assert detector.accepted.names == tuple(names)
    one, other = ([row.confidence for row in detector.predict_files(path)] for path in (train, turned))
    assert one == other and not all(row.is_ood for row in detector.predict_files(turned))
    for path, reason in {
        table("other.csv", [0, 1, 2], ["height", "weight", "depth"]): "has no column 'width'",
        table("fewer.csv", [0, 2]): "has no column 'width'",
    }.items():
        assert reason in next(iter(detector.predict_files(path))).reason


def test_labels_are_read_to_calibrate_and_ignored_to_predict(tmp_path: Path) -> None:
    """Labels that are text were numbered file by file, in alphabetical order, whatever the classes were called."""
    logits, path = FEATURES[:, :4], tmp_path / "rows.npz"
    np.savez(path, logits=logits, labels=np.array(["eel", "cat"] * 20))
    classes = ("eel", "dog", "cat", "ant")
    assert rows_in({"features": path}, classes).labels.tolist() == [0, 2] * 20
    with pytest.raises(MacsError, match="name 2 classes .* give classes, the names"):
        rows_in({"features": path})
    detector = macs.FeatureDetector("msp", classes=classes).calibrate(rows_in({"features": path}, classes), keep=0.9)
    np.savez(path, logits=logits, labels=np.array(["gnu", "cat"] * 20))
    assert not any(row.reason for row in detector.predict_files(path))


@pytest.mark.parametrize("first", [0, 1])
def test_numbered_columns_count_from_nought_or_one(first: int, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"feature_{first + 1},feature_{first}\n2,1\n")
    assert rows_in({"features": tmp_path / "a.csv"}).features.tolist() == [[1, 2]]


def test_an_empty_cell_is_a_reason(detector: macs.FeatureDetector, tmp_path: Path) -> None:
    lines = written(tmp_path / "rows.csv").read_text().splitlines()
    lines[3] = "," + lines[3].partition(",")[2]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    rows = list(detector.predict_files(tmp_path / "rows.csv", fdr=0.2))
    assert [bool(row.reason) for row in rows] == [place == 2 for place in range(40)]


def test_a_cell_that_is_text_is_a_reason_wherever_it_stands(detector: macs.FeatureDetector, tmp_path: Path) -> None:
    lines = written(tmp_path / "rows.csv").read_text().splitlines()
    lines[1] = "oops," + lines[1].partition(",")[2]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    rows = list(detector.predict_files(tmp_path / "rows.csv"))
    assert [bool(row.reason) for row in rows] == [place == 0 for place in range(40)]


def test_a_list_that_is_missing_is_a_reason(detector: macs.FeatureDetector, tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"features": [None, *FEATURES[1:].tolist()]}), tmp_path / "rows.parquet")
    rows = list(detector.predict_files(tmp_path / "rows.parquet"))
    assert [bool(row.reason) for row in rows] == [place == 0 for place in range(40)]


def test_a_table_without_rows_says_so(detector: macs.FeatureDetector, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n")
    (row,) = detector.predict_files(tmp_path / "rows.csv")
    assert "has no rows" in row.reason


def test_a_file_that_cannot_be_read_is_one_row_and_the_others_are_judged(
    detector: macs.FeatureDetector, tmp_path: Path
) -> None:
    good, narrow = written(tmp_path / "good.npy"), tmp_path / "narrow.npy"
    np.save(narrow, FEATURES[:, :2])
    rows = list(detector.predict_files([narrow, tmp_path / "none.npz", good]))
    assert len(rows) == 42 and rows[2].confidence is not None
    assert "has 2 features per row" in rows[0].reason and "There is no file" in rows[1].reason


def test_arrays_that_nobody_asks_for_are_not_unpacked(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=FEATURES, notes=np.array([{}], object))
    assert rows_in({"features": tmp_path / "a.npz"}).features.shape == FEATURES.shape


def test_a_table_of_many_columns_takes_seconds(tmp_path: Path) -> None:
    """With one pass over the columns per column, it would take minutes."""
    names, cells = ",".join(f"c{i}" for i in range(50_000)), ",".join(["1"] * 50_000)
    (tmp_path / "wide.csv").write_text(f"{names}\n{cells}\n{cells}\n")
    started = time.process_time()
    rows = next(tables_in(tmp_path / "wide.csv"))
    assert rows.matched(replace(rows.columns, names=rows.names[::-1])).columns.features == 50_000
    assert time.process_time() - started < 20


def test_a_head_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "head.npz", weight=FEATURES[:4], bias=np.arange(4))
    weight, bias = head_in(tmp_path / "head.npz")
    assert weight.tolist() == FEATURES[:4].tolist() and bias.tolist() == [0, 1, 2, 3]
    with pytest.raises(MacsError, match="with the arrays weight"):
        head_in(written(tmp_path / "rows.npz"))


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def objects(path: Path) -> None:
    np.save(path, np.array([[object()]]), allow_pickle=True)


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps([1, 2]))


def other_names(path: Path) -> None:
    np.savez(path, x=FEATURES)


def struct(path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"features": [{"a": 1.0}]}), path)


def ragged(path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"features": [[1.0], [1.0, 2.0]]}), path)


def swelling(path: Path) -> None:
    """Half a gigabyte of zeros in half a megabyte."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("features.npy", "w") as member:
        np.lib.format.write_array_header_1_0(
            cast(BinaryIO, member), {"descr": "<f8", "fortran_order": False, "shape": (2**23, 8)}
        )
        for _ in range(2**29 // 2**24):
            member.write(bytes(2**24))


def swelling_table(path: Path) -> None:
    """A column of 40 million zeros, which are written as one run of them."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    zeros = pyarrow.array(np.zeros(1_000_000))
    column = pyarrow.chunked_array([zeros] * 40)
    parquet.write_table(pyarrow.table({"feature_0": column}), path)


@pytest.mark.parametrize(
    ("name", "write", "words"),
    [
        ("a.npy", nothing, "is damaged or not a file of numpy"),
        ("a.npy", objects, "holds Python objects, which are never unpickled"),
        ("a.npy", pickled, "holds Python objects, which are never unpickled"),
        ("a.npz", nothing, "is damaged or not a file of numpy"),
        ("a.npz", other_names, "has the arrays x; call them features, logits, probabilities"),
        ("a.npz", swelling, "a.npz would take 537 MB of memory, over 100 times"),
        ("a.parquet", swelling_table, "a.parquet would take 320 MB of memory, over 100 times"),
        ("a.csv", lambda path: path.write_text("feature_1,feature_01\n1,2\n"), "which are one column"),
        ("a.csv", lambda path: path.write_text("a,b\n1,1_0\n"), "The column 'b' of .* does not hold numbers"),
        ("a.csv", nothing, "is empty"),
        ("a.csv", lambda path: path.write_text("a,b\n1\n"), "has 2 columns, but its row 0 has 1 cells"),
        ("a.csv", lambda path: path.write_text("a,b\n1,2\n3,4\n5\n6,7\n"), "has 2 columns, but its row 2 has 1 cells"),
        ("a.csv", lambda path: path.write_text("logit_0,logit_1,logit_3\n1,2,3\n"), "'logit_3', .* called 'logit_2'"),
        ("a.csv", lambda path: path.write_text("feature_2,feature_3\n1,2\n"), "'feature_3', .* called 'feature_1'"),
        ("a.csv", lambda path: path.write_text("feature_999999999\n1\n"), "none that is called 'feature_1'"),
        ("a.csv", lambda path: path.write_text("a,a\n1,2\n"), "two columns that are called 'a'"),
        ("a.csv", lambda path: path.write_text("a,b\n1,x\n"), "The column 'b' of .* does not hold numbers"),
        ("a.csv", lambda path: path.write_bytes(b"a\n\xff\n"), "is not a CSV file in UTF-8"),
        ("a.parquet", nothing, "is damaged or not a Parquet file"),
        ("a.parquet", struct, "The column 'features' of .* is nested"),
        ("a.parquet", ragged, "must hold lists of numbers, all equally long"),
        ("a.txt", nothing, "give a file that ends in .npz, .npy, .parquet, .csv"),
    ],
)
def test_other_files_are_refused(name: str, write: Callable[[Path], Any], words: str, tmp_path: Path) -> None:
    write(tmp_path / name)
    with pytest.raises(MacsError, match=words):
        rows_in({"features": tmp_path / name})
