"""Public benchmarks, on small images in OpenOOD's own layout; the expected numbers are computed as its code does."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from sklearn.metrics import auc, precision_recall_curve, roc_auc_score, roc_curve

from command import refused, run
from macs import nets, scores
from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet
from macs.data.preparation import NORMALISATIONS, Preparation
from macs.evaluation import benchmarks
from openood_folder import OOD, write_list, write_openood, write_pictures

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


@pytest.fixture(scope="module")
def openood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("openood") / "data"
    write_openood(root)
    return root


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """best.ckpt as OpenOOD's trainer saves it: a bare state dict of its ResNet18_32x32."""
    torch.manual_seed(0)
    net = nets.build("resnet-18", 10)
    state = {name: value for name, value in net.state_dict().items() if name.split(".")[0] in KEYS}
    state["fc.weight"] = 20 * state["fc.weight"]  # so that confidences differ
    folder = tmp_path_factory.mktemp("cifar10_resnet18_32x32_base_e100_lr0.1_default") / "s0"
    folder.mkdir()
    torch.save(state, folder / "best.ckpt")
    return folder / "best.ckpt"


KEYS = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4", "fc")


def their_pixels(path: Path, resize: int = 32, size: int = 32) -> np.ndarray:
    """torchvision's Resize(resize, BILINEAR) and CenterCrop(size) on a PIL image converted to RGB, by Pillow alone."""
    picture = Image.open(path).convert("RGB")
    width, height = picture.size
    if width <= height:
        picture = picture.resize((resize, int(resize * height / width)), Image.Resampling.BILINEAR)
    else:
        picture = picture.resize((int(resize * width / height), resize), Image.Resampling.BILINEAR)
    top, left = round((picture.height - size) / 2.0), round((picture.width - size) / 2.0)
    return np.asarray(picture.crop((left, top, left + size, top + size)))


def listed(root: Path, name: str) -> Iterator[tuple[Path, int]]:
    for line in (root / "benchmark_imglist" / "cifar10" / f"test_{name}.txt").read_text().splitlines():
        path, label = line.split(" ", 1)
        yield root / "images_classic" / path, int(label)


@torch.no_grad()
def their_confidences(root: Path, checkpoint: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Maximum softmax probabilities and predictions of a network that gets images normalised by ToTensor, Normalize."""
    net = nets.build("resnet-18", 10, normalisation="none").eval()
    net.load_state_dict(torch.load(checkpoint), strict=False)
    pixels = np.stack([their_pixels(path) for path, _ in listed(root, name)])
    floats = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    confidences, predictions = net((floats - mean) / std).softmax(dim=1).max(dim=1)
    return confidences.numpy(), predictions.numpy()


def their_metrics(known: np.ndarray, unknown: np.ndarray) -> dict[str, float]:
    """OOD positive; FPR at the first TPR >= 0.95; areas under the curves of scikit-learn by the trapezoidal rule."""
    is_ood = np.r_[np.zeros(len(known)), np.ones(len(unknown))]
    confidences = np.r_[known, unknown]
    fpr, tpr, _ = roc_curve(is_ood, -confidences)
    precision_in, recall_in, _ = precision_recall_curve(1 - is_ood, confidences)
    precision_out, recall_out, _ = precision_recall_curve(is_ood, -confidences)
    return {
        "fpr95": fpr[np.argmax(tpr >= 0.95)],
        "auroc": roc_auc_score(is_ood, -confidences),
        "aupr_trapezoid_id": auc(recall_in, precision_in),
        "aupr_trapezoid": auc(recall_out, precision_out),
    }


def test_the_numbers_are_those_of_openoods_own_computation(
    openood: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "--net", "resnet-18", "--checkpoint", checkpoint, "--benchmark", "openood-cifar10"]
    command += ["--data", openood, "--precision", "float32"]
    run(*command, "--json")
    value = json.loads(capsys.readouterr().out)
    known, predictions = their_confidences(openood, checkpoint, "cifar10")
    labels = [label for _, label in listed(openood, "cifar10")]
    assert value["id"] == {"name": "cifar10", "images": 20, "accuracy": pytest.approx((predictions == labels).mean())}
    found = value["scores"]["msp"]
    expected = {name: their_metrics(known, their_confidences(openood, checkpoint, name)[0]) for name in OOD}
    assert list(found["ood"]) == list(OOD)
    for name, numbers in expected.items():
        assert {key: found["ood"][name][key] for key in numbers} == pytest.approx(numbers, abs=1e-9)
    for group, names in (("near", ["cifar100", "tin"]), ("far", ["mnist", "svhn", "texture", "places365"])):
        for key in expected["tin"]:
            mean = np.mean([expected[name][key] for name in names])
            assert found["groups"][group][key] == pytest.approx(mean, abs=1e-9)
    assert value["published"]["auroc"]["OE"] == {"near": 0.9482, "far": 0.96}

    run(*command)
    shown = capsys.readouterr().out.splitlines()
    near = [f"{100 * found['groups']['near'][key]:.2f}" for key in expected["tin"]]
    assert [line.replace("│", " ").split() for line in shown if "near mean" in line] == [["near", "mean", *near]]
    far = f"{100 * found['groups']['far']['auroc']:.2f}"
    rows = [[cell.strip() for cell in line.split("│")[1:7]] for line in shown if line.count("│") == 7]
    assert ["msp", "MSP", near[1], far, "88.03", "90.73"] in rows
    assert ["", "OE", "", "", "94.82", "96.00"] in rows


def test_several_scores_stand_in_the_leaderboards_order_and_go_into_its_columns(
    openood: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "--net", "resnet-18", "--checkpoint", checkpoint, "--benchmark", "openood-cifar10"]
    command += ["--data", openood, "--score", "gen", "knn", "energy", "msp", "caref", "--score.k", "3"]
    run(*command, "--export-csv", tmp_path / "rows.csv", "--json")
    value = json.loads(capsys.readouterr().out)
    with (tmp_path / "rows.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert [row["Postprocessor"] for row in rows] == ["MSP", "EBO", "KNN", "GEN", "caref"]
    for row, score in zip(rows, ("msp", "energy", "knn", "gen", "caref"), strict=True):
        groups = value["scores"][score]["groups"]
        assert float(row["Near-OOD_AUROC"]) == pytest.approx(100 * groups["near"]["auroc"], abs=0.005)
        assert float(row["Far-OOD_AUROC"]) == pytest.approx(100 * groups["far"]["auroc"], abs=0.005)
        assert float(row["ID_Accuracy"]) == pytest.approx(100 * value["id"]["accuracy"], abs=0.005)
        assert (row["Training"], row["Outlier_Data"], row["Arch"]) == ("CrossEntropy", "No", "resnet-18")
    heading = "Training,Postprocessor,Near-OOD_AUROC,Far-OOD_AUROC,ID_Accuracy,Outlier_Data,Arch,Additional_Description"
    assert (tmp_path / "rows.csv").read_text().splitlines()[0] == heading

    run(*command)
    shown = capsys.readouterr().out.splitlines()
    rows_of = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown if line.count("│") > 7]
    assert [cells[0] for cells in rows_of] == 4 * ["msp", "energy", "knn", "gen", "caref"]  # one table per metric
    sets = value["scores"]["knn"]["ood"]
    shares = [sets[name]["auroc"] for name in ("cifar100", "tin")] + [value["scores"]["knn"]["groups"]["near"]["auroc"]]
    assert rows_of[7][1:4] == [f"{100 * share:.2f}" for share in shares]  # the second table is AUROC


def test_a_csv_needs_a_benchmark_and_a_name_of_its_own(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "--net", "resnet-18", "--checkpoint", checkpoint]
    sentence = refused(capsys, *command, "--id", "digits", "--ood", "svhn", "--export-csv", tmp_path / "a.csv")
    assert "name one with --benchmark" in sentence
    sentence = refused(capsys, *command, "--benchmark", "openood-cifar10", "--export-csv", tmp_path / "a.txt")
    assert "must end in .csv" in sentence


def test_in_python(openood: Path, checkpoint: Path) -> None:
    benchmark = benchmarks.get("openood-cifar10")
    net = nets.load(checkpoint, "resnet-18", 10, normalisation=benchmark.normalisation)
    with pytest.warns(
        MacsWarning, match=r"published number of images.* cifar10 \(20 of 9,000\), cifar100 \(7 of 9,000\)"
    ):
        result = benchmark.evaluate(net, ["msp", "energy"], openood, progress=False)
    assert "far mean" in str(result) and set(result.as_dict()["scores"]) == {"msp", "energy"}
    train = benchmark.load("train", root=openood)
    assert len(train) == 30 and train.labels.tolist() == [i // 3 for i in range(30)]


@pytest.mark.parametrize("name", ["cifar10", *OOD])
def test_every_pixel_is_that_of_openoods_preprocessing(openood: Path, name: str) -> None:
    images = benchmarks.get("openood-cifar10").load("test", name, openood)
    expected = np.stack([their_pixels(path) for path, _ in listed(openood, name)])
    np.testing.assert_array_equal(images.pixels[:], expected)


@pytest.mark.parametrize(("resize", "size"), [(32, 32), (256, 224)])
@pytest.mark.parametrize("name", ["chelsea", "coffee", "rocket", "astronaut"])
def test_so_is_every_pixel_of_a_photograph(tmp_path: Path, name: str, resize: int, size: int) -> None:
    Image.fromarray(getattr(skimage.data, name)()).save(tmp_path / "photograph.jpg")
    images = ImageSet.from_files(tmp_path / "photograph.jpg", preparation=Preparation(size, resize))
    np.testing.assert_array_equal(images.pixels[:][0], their_pixels(tmp_path / "photograph.jpg", resize, size))


def test_large_pictures_may_lie_in_either_folder(tmp_path: Path) -> None:
    for folder, name in (("images_largescale/ninco", "ninco"), ("images_classic/texture", "textures")):
        paths = write_pictures(tmp_path, folder, "RGB", (300, 260), "jpg", 2)
        write_list(tmp_path, f"imagenet/test_{name}.txt", [f"{path} -1" for path in paths])
        images = benchmarks.get("openood-imagenet").load("test", name, tmp_path)
        assert images.pixels.shape == (2, 224, 224, 3)
        np.testing.assert_array_equal(images.pixels[:][1], their_pixels(tmp_path / folder / "0001.jpg", 256, 224))


def test_the_records_are_those_of_openood() -> None:
    names = ["cifar10", "cifar100", "imagenet", "imagenet200"]
    assert benchmarks.available() == [f"openood-{name}" for name in names]
    for name, classes in zip(names, (10, 100, 1000, 200), strict=True):
        record = benchmarks.get(f"openood-{name}")
        assert record.classes == classes and list(record.groups) == ["near", "far"] and record.id == name
        assert record.preparation.normalisation == NORMALISATIONS[record.normalisation]
        assert all(set(values) == {"near", "far"} for values in record.published.values())
        assert all(40 < value < 100 for values in record.published.values() for value in values.values())
        ours = {record.published_name(score) for score in scores.available()}
        unknown = {"OpenMax", "TempScale", "GradNorm", "KLM", "NAC", "CombOOD", "WeiPer+KLD"}
        assert {*record.published} - ours - unknown == {"LogitNorm", "OE", "MCD", "UDG", "MixOE"} & {*record.published}


def test_what_is_missing_or_contradictory_is_said(
    openood: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "--net", "resnet-18", "--checkpoint", checkpoint]
    sentence = refused(capsys, *command, "--benchmark", "openood-cifar10", "--data", tmp_path)
    assert "openood-cifar10 needs the list" in sentence and "test_cifar10.txt" in sentence
    assert "did you mean 'openood-cifar10'" in refused(capsys, *command, "--benchmark", "openood-cifar")
    sentence = refused(capsys, *command, "--benchmark", "openood-cifar10", "--ood", "svhn")
    assert "has its own sets; leave out --ood and --id" in sentence
    assert "Name OOD test sets with --ood, or a public benchmark" in refused(capsys, *command, "--id", "digits")
    with pytest.raises(MacsError, match="pathlib:Path is not a benchmark"):
        benchmarks.get("pathlib:Path")
