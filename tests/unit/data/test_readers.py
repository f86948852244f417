"""Files as the datasets' authors wrote them, and files that are damaged or mean harm."""

import os
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from macs.core.errors import MacsError
from macs.data.pixels import Mapped
from macs.data.readers import map_rows, read_npy, read_pickle, read_rows, read_svhn
from official import images, python2_pickle, rows, write_svhn


def truncations(content: bytes, count: int = 40) -> list[bytes]:
    """The beginning of a file, cut off at places all over it."""
    return [content[:length] for length in np.linspace(0, len(content) - 1, count).astype(int)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("core", ["numpy.core", "numpy._core"])
def test_a_python_2_batch_gives_its_images_and_labels(tmp_path: Path, core: str) -> None:
    pixels, labels = images(5), [3, 0, 9, 1, 1]
    (tmp_path / "batch").write_bytes(python2_pickle({"data": rows(pixels), "labels": labels}, core))
    read, read_labels = read_rows(tmp_path / "batch", "labels", classes=10)
    np.testing.assert_array_equal(read, pixels)
    assert read.flags["C_CONTIGUOUS"] and read.dtype == np.uint8
    assert read_labels.tolist() == labels and read_labels.dtype == np.int64


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_images_are_left_in_every_pickle_that_holds_them_byte_for_byte(tmp_path: Path, protocol: int) -> None:
    pixels, path = images(6), tmp_path / "batch"
    path.write_bytes(pickle.dumps({"data": rows(pixels), "labels": [1] * 6}, protocol))
    mapped, labels = map_rows(path, "labels", classes=10)
    assert isinstance(mapped, Mapped) == (protocol >= 3)  # older ones spell bytes as text
    np.testing.assert_array_equal(mapped[np.array([4, 0])], pixels[[4, 0]])
    np.testing.assert_array_equal(mapped[:], pixels)
    assert labels.tolist() == [1] * 6
    path.write_bytes(python2_pickle({"data": rows(pixels), "labels": [1] * 6}))
    assert isinstance(map_rows(path, "labels", classes=10)[0], Mapped)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_python_3_batches_of_every_protocol_read_the_same(tmp_path: Path, protocol: int) -> None:
    pixels, labels = images(4), [np.int64(1), np.int64(1000), np.int64(7), np.int64(500)]
    batch = {"data": rows(pixels), "labels": labels, "mean": rows(pixels).mean(axis=0), "note": b"\xff\x00"}
    (tmp_path / "batch").write_bytes(pickle.dumps(batch, protocol))
    read, read_labels = read_rows(tmp_path / "batch", "labels", classes=1000, first=1)
    np.testing.assert_array_equal(read, pixels)
    assert read_labels.tolist() == [0, 999, 6, 499]
    content = read_pickle(tmp_path / "batch")
    np.testing.assert_array_equal(content["mean"], batch["mean"])
    assert content["note"] == b"\xff\x00"


class Malice:
    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_that_runs_code_is_refused_before_it_runs(tmp_path: Path, protocol: int) -> None:
    import os

    victim, file = tmp_path / "victim", tmp_path / "batch"
    file.write_bytes(pickle.dumps({"data": Malice(os.mkdir, str(victim))}, protocol))
    with pytest.raises(MacsError, match=r"batch asks to run posix\.mkdir|batch asks to run nt\.mkdir"):
        read_pickle(file)
    assert not victim.exists()
    pickle.loads(file.read_bytes())
    assert victim.exists()  # the same bytes do harm when read carelessly


@pytest.mark.parametrize("function", [eval, getattr, np.load, np.frombuffer, np.memmap, __import__])
def test_only_the_functions_that_rebuild_arrays_are_let_through(tmp_path: Path, function: Callable[..., Any]) -> None:
    (tmp_path / "batch").write_bytes(pickle.dumps({"data": Malice(function, "1")}))
    with pytest.raises(MacsError, match="asks to run"):
        read_pickle(tmp_path / "batch")


def test_a_forged_dtype_cannot_make_bytes_into_pointers(tmp_path: Path) -> None:
    """The last number of a dtype's state are flags; numpy believes them, and would follow pixels to any address."""
    pixels = images(2)
    honest = python2_pickle({"data": rows(pixels), "labels": [1, 2]})
    end_of_state = b"J\xff\xff\xff\xffK\x00tb"
    assert honest.count(end_of_state) == 1
    (tmp_path / "batch").write_bytes(honest.replace(end_of_state, b"J\xff\xff\xff\xffK\x3ftb"))
    np.testing.assert_array_equal(read_rows(tmp_path / "batch", "labels", classes=10)[0], pixels)
    (tmp_path / "batch").write_bytes(honest.replace(b"U\x02u1", b"U\x02O8"))
    with pytest.raises(MacsError, match="an array of O8 is not an array of numbers"):
        read_pickle(tmp_path / "batch")


@pytest.mark.parametrize(
    "array", [np.arange(12).reshape(3, 4), np.asfortranarray(np.eye(3, 2)), np.array([1, 2], ">i2")]
)
def test_arrays_keep_their_order_and_byte_order(tmp_path: Path, array: np.ndarray) -> None:
    for protocol in (2, 5):
        (tmp_path / "batch").write_bytes(pickle.dumps({"mean": array}, protocol))
        np.testing.assert_array_equal(read_pickle(tmp_path / "batch")["mean"], array)


def test_a_truncated_pickle_names_its_file_wherever_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "data_batch_1"
    for content in truncations(python2_pickle({"data": rows(images(2)), "labels": [1, 2]})):
        file.write_bytes(content)
        with pytest.raises(MacsError, match=r"data_batch_1.*get the file again"):
            read_rows(file, "labels", classes=10)


def test_a_flipped_bit_in_a_pickle_never_ends_in_a_traceback(tmp_path: Path) -> None:
    file, content = tmp_path / "batch", python2_pickle({"data": rows(images(1, size=2)), "labels": [1]})
    for position in range(len(content)):
        for bit in range(0, 8, 3):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            file.write_bytes(changed)
            with suppress(MacsError):
                read_rows(file, "labels", classes=10)


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        ({"data": rows(images(2)), "labels": [1, 10]}, "the label 10 of image 1 is not in 0 to 9"),
        ({"data": rows(images(2)), "labels": [-1, 1]}, "the label -1 of image 0 is not in 0 to 9"),
        ({"data": rows(images(2)), "labels": [1]}, "2 images and labels of shape"),
        ({"data": rows(images(2))}, "no labels"),
        ({"labels": [1]}, "no data"),
        ({"data": rows(images(2))[:, :-1], "labels": [1, 1]}, r"shape \(2, 3071\)"),
        ({"data": images(2), "labels": [1, 1]}, r"shape \(2, 32, 32, 3\)"),
        ([1, 2], "no attribute"),
    ],
)
def test_a_batch_that_makes_no_sense_says_why(tmp_path: Path, batch: dict[str, Any] | list[int], why: str) -> None:
    (tmp_path / "batch").write_bytes(python2_pickle(batch))
    with pytest.raises(MacsError, match=why):
        read_rows(tmp_path / "batch", "labels", classes=10)


def test_svhn_counts_from_1_and_calls_zero_ten(tmp_path: Path) -> None:
    pixels = images(10)
    write_svhn(tmp_path / "test_32x32.mat", pixels, [10, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    read, labels = read_svhn(tmp_path / "test_32x32.mat")
    np.testing.assert_array_equal(read, pixels)
    assert labels.tolist() == list(range(10)) and labels.dtype == np.int64


@pytest.mark.parametrize("compress", [True, False])
def test_a_truncated_mat_file_names_itself_wherever_it_ends(tmp_path: Path, compress: bool) -> None:
    file = tmp_path / "train_32x32.mat"
    write_svhn(file, images(2), [1, 2], compress)
    for content in truncations(file.read_bytes()):
        file.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scipy remarks on what it meets before it gives up
            with pytest.raises(MacsError, match="train_32x32.mat"):
                read_svhn(file)


@pytest.mark.parametrize("label", [0, 11])
def test_an_svhn_label_out_of_range_says_which(tmp_path: Path, label: int) -> None:
    write_svhn(tmp_path / "a.mat", images(3), [1, 2, label])
    with pytest.raises(MacsError, match=f"a.mat.*label {label} of image 2 is not in 1 to 10"):
        read_svhn(tmp_path / "a.mat")


def test_another_mat_file_is_not_taken_for_svhn(tmp_path: Path) -> None:
    from scipy.io import savemat

    savemat(tmp_path / "a.mat", {"X": np.zeros((4, 4)), "y": [1]})
    with pytest.raises(MacsError, match=r"its X is float64 of shape \(4, 4\)"):
        read_svhn(tmp_path / "a.mat")
    savemat(tmp_path / "a.mat", {"Z": 1})
    with pytest.raises(MacsError, match="no X and no y"):
        read_svhn(tmp_path / "a.mat")


def test_a_npy_file_stays_on_disk(tmp_path: Path) -> None:
    pixels = images(6)
    np.save(tmp_path / "a.npy", pixels)
    read = read_npy(tmp_path / "a.npy")
    assert isinstance(read, Mapped)
    np.testing.assert_array_equal(read, pixels)


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.zeros((2, 32, 32, 3)), "float64 of shape 2 x 32 x 32 x 3"),
        (np.zeros((2, 3, 32, 32), np.uint8), "uint8 of shape 2 x 3 x 32 x 32"),
        (np.zeros((2, 32, 16, 3), np.uint8), "uint8 of shape 2 x 32 x 16 x 3"),
        (np.zeros((2, 3072), np.uint8), "uint8 of shape 2 x 3072"),
        (np.zeros((0, 32, 32, 3), np.uint8), "no images"),
    ],
)
def test_an_array_of_something_else_says_what_it_is(tmp_path: Path, array: np.ndarray, what: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(MacsError, match=rf"a\.npy holds {what}"):
        read_npy(tmp_path / "a.npy")


def test_a_truncated_npy_file_names_itself_wherever_it_ends(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", images(2))
    for content in truncations((tmp_path / "a.npy").read_bytes()):
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(MacsError, match=r"a\.npy"):
            read_npy(tmp_path / "a.npy")


def test_a_npy_file_of_pickled_objects_is_never_unpickled(tmp_path: Path) -> None:
    import os

    victim = tmp_path / "victim"
    np.save(tmp_path / "a.npy", np.array([Malice(os.mkdir, str(victim))], object), allow_pickle=True)
    with pytest.raises(MacsError, match=r"a\.npy"):
        read_npy(tmp_path / "a.npy")
    assert not victim.exists()


def npy(shape: object, dtype: str = "|u1", fortran: bool = False, data: bytes = bytes(3072)) -> bytes:
    """A .npy file, version 1.0, by its specification."""
    header = f"{{'descr': {dtype!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "shape",
    ["(2, 32, 32, 3)", "(10**18, 32, 32, 3)", "(-1, 32, 32, 3)", "(-1, -32, 32, 3)", "(True, 32, 32, 3)", "()", "None"]
    + [f"({count}, 32, 32, 3)" for count in (10**18, 2**54, 2**62, 2**64)]
    + [f"({2**60 + 1}, 4, 4, 3)", "(1.0, 32, 32, 3)", "(" * 5000],
)
def test_a_forged_header_is_refused(tmp_path: Path, shape: str) -> None:
    (tmp_path / "a.npy").write_bytes(npy(shape))
    with pytest.raises(MacsError, match=r"a\.npy"):
        read_npy(tmp_path / "a.npy")


def test_the_order_in_memory_and_of_bytes_changes_nothing(tmp_path: Path) -> None:
    pixels = images(3)
    (tmp_path / "a.npy").write_bytes(npy(pixels.shape, fortran=True, data=pixels.tobytes(order="F")))
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy")[:], pixels)
    (tmp_path / "b.npy").write_bytes(npy(pixels.shape, dtype=">u1", data=pixels.tobytes()))
    np.testing.assert_array_equal(read_npy(tmp_path / "b.npy")[:], pixels)


@pytest.mark.parametrize("content", [{"images": images(2)}, {}])
def test_an_archive_of_arrays_says_that_it_is_one(tmp_path: Path, content: dict[str, Any]) -> None:
    np.savez(tmp_path / "a.npz", **content)
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(MacsError, match=r"a\.npy is an archive \(\.npz\)"):
        read_npy(tmp_path / "a.npy")


@pytest.mark.parametrize("read", [read_npy, read_pickle, read_svhn])
def test_a_reader_waits_for_no_fifo(tmp_path: Path, read: Callable[..., Any]) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(MacsError, match="is a FIFO"):
        read(tmp_path / "a")
    with pytest.raises(MacsError, match="is a device"):
        read(Path("/dev/zero"))


@pytest.mark.parametrize("read", [read_npy, read_pickle, read_svhn])
def test_a_reader_says_that_a_file_may_not_be_read(unprivileged: Path, read: Callable[..., Any]) -> None:
    (unprivileged / "a").touch(0)
    with pytest.raises(MacsError, match="Permission denied"):
        read(unprivileged / "a")


@pytest.mark.parametrize(
    "batch",
    [
        {"data": [[1], [1, 2]], "labels": [0, 1]},
        {"data": np.zeros((2, 12), np.uint8), "labels": [[0], [0, 1]]},
        {"data": np.zeros((2, 12), np.uint8), "labels": [0, 2**70]},
        {"data": None, "labels": None},
    ],
)
def test_rows_of_several_lengths_are_damage(tmp_path: Path, batch: dict[str, Any]) -> None:
    (tmp_path / "a").write_bytes(pickle.dumps(batch))
    with pytest.raises(MacsError, match="damaged"):
        read_rows(tmp_path / "a", "labels", 10)


def test_a_matlab_file_of_sparse_matrices_is_damage(tmp_path: Path) -> None:
    sparse = scipy.sparse.csc_matrix(np.eye(3))
    for content in ({"X": sparse, "y": sparse}, {"X": np.zeros((32, 32, 3, 3), np.uint8), "y": sparse}):
        scipy.io.savemat(tmp_path / "a.mat", content)
        with pytest.raises(MacsError, match=r"a\.mat"):
            read_svhn(tmp_path / "a.mat")
