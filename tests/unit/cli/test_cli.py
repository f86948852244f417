"""The command line as a user meets it: results on standard output, one sentence and exit code 2 for a mistake."""

import json
from pathlib import Path

import pytest
import torch

from command import refused, run
from macs import nets
from macs.cli import COMMANDS
from macs.cli._app import app
from macs.data.preparation import Preparation
from macs.data.spec import DataSpec
from macs.training.recipe import Recipe
from macs.training.spec import Start, TrainingSpec
from repository import ROOT
from tiny import save_folders


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folders(tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["finetune", "--epoch", "3"], "Did you mean --epochs"),
        (["finetune", "--epochs", "many"], "--epochs"),
        (["finetune", "--epochs", "1.5"], "--epochs: it must be a whole number, not '1.5'."),
        (["finetun"], "Did you mean"),
        (
            ["calibrate", "run", "--out", "d.safetensors", "--confidence-level", "0.9"],
            "confidence level is called --keep",
        ),
        (["calibrate", "run"], "macs calibrate needs --out; see macs calibrate --help."),
        (["predict", "--detector"], "--detector needs a value; see macs predict --help."),
        (["inspect"], "macs inspect needs FILE; see macs inspect --help."),
        (["finetune", "--margin", "1"], "below 1"),
        (["finetune", "--method", "mcas"], "did you mean 'macs'"),
        (["finetune", "--recipe", "nowhere.toml"], "no recipe at nowhere.toml"),
        (["finetune", "--id", "cifar10", "--data", "nowhere"], "cifar-10-batches-py"),
        (["finetune", "--id", "cifar11"], "did you mean 'cifar10'"),
        (["sweep", "--engine", "rya"], "There is no engine called 'rya' (did you mean 'ray'?)"),
        (["sweep", "--engine", "nowhere:Engine"], "Cannot use 'nowhere:Engine' as an engine"),
        (["sweep", "--engine", "nowhere:Engine", "--gpus", "1"], "--gpus is for --engine ray"),
        (["pretrain", "--margin", "0.5"], "--margin"),
        (["evaluate", "--ood", "svhn"], "Name a run folder"),
        (["evaluate", "nowhere", "--ood", "svhn"], "nowhere/recipe.toml"),
        (["evaluate", "--net", "wrn-40-2"], "--ood"),
    ],
)
def test_a_mistake_gets_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACS_DATA", "nowhere")
    assert words in refused(capsys, *arguments)


def test_the_network_must_fit_the_checkpoint_and_the_images(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nets.save(nets.build("wrn-10-1", classes=7), tmp_path / "seven.safetensors")
    options = ["--id", folders / "mine", "--ood", folders / "unknown"]
    for net in ("wrn-10-1", "wrn-16-1", "allconv"):
        refused(capsys, "evaluate", "--net", net, "--checkpoint", tmp_path / "seven.safetensors", *options)


def test_the_normalisation_of_a_public_checkpoint_is_named(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    torch.save(nets.build("resnet-18", 3).state_dict(), tmp_path / "best.ckpt")
    sets = ["--id", folders / "mine", "--ood", folders / "unknown", "--size", 8]
    command = ["evaluate", "--net", "resnet-18", "--checkpoint", tmp_path / "best.ckpt", *sets, "--json"]
    found = {}
    for name in ("oe", "openood-cifar100"):
        run(*command, "--normalisation", name)
        captured = capsys.readouterr()
        found[name] = captured.out
        assert "normalised" not in captured.err
    assert found["oe"] != found["openood-cifar100"]
    run(*command)
    captured = capsys.readouterr()
    assert captured.out == found["oe"] and "best.ckpt does not say how its inputs were normalised" in captured.err
    assert "did you mean 'openood-cifar10'" in refused(capsys, *command, "--normalisation", "openood")


def test_an_unfinished_run_is_not_evaluated(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = TrainingSpec(
        train=DataSpec(str(folders / "mine"), "train"),
        outliers=None,
        net="wrn-10-1",
        classes=(),
        preparation=Preparation(size=8),
        start=Start("random"),
        method="msp",
        recipe=Recipe(),
    )
    (tmp_path / "recipe.toml").write_text(spec.to_toml())
    assert "not finished" in refused(capsys, "evaluate", tmp_path, "--ood", folders / "unknown")


def test_ctrl_c_promises_nothing_that_a_command_does_not_do(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("macs.training.runs.load", interrupted)
    (folders / "net.pt").touch()
    net = ["--net", "wrn-10-1", "--checkpoint", folders / "net.pt"]
    run("evaluate", *net, "--id", folders / "mine", "--ood", folders / "unknown", expect=130)
    assert capsys.readouterr().err.strip() == "Stopped. Nothing is left half-written."


RUN_NETWORKS = ["demo", "pretrain", "finetune", "sweep", "evaluate", "report", "calibrate", "predict", "reproduce"]


@pytest.mark.parametrize("command", RUN_NETWORKS)
def test_a_command_that_runs_networks_takes_a_device_and_threads(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(command, "--help")
    text = capsys.readouterr().out
    assert "--device" in text and "--threads" in text


def test_a_device_that_is_not_there_is_one_sentence(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    needed = {"predict": ["x.png", "--detector", folders / "x.safetensors"], "calibrate": ["--out", tmp_path / "x"]}
    needed |= {command: ["run", "--ood", folders / "unknown"] for command in ("evaluate", "report")}
    for command in set(RUN_NETWORKS) - {"predict"}:  # which first looks for its file
        line = refused(capsys, command, *needed.get(command, []), "--device", "cuda:1")
        assert line == "error: There is no device on this machine called 'cuda:1'; choose one of auto, cpu."
    for command in RUN_NETWORKS:
        for threads in ("0", "-1", "1000000"):
            line = refused(capsys, command, *needed.get(command, []), f"--threads={threads}")
            assert "--threads must be at least 1 and at most 1,024" in line
    assert not any(tmp_path.iterdir())


def test_the_list_of_datasets(capsys: pytest.CaptureFixture[str]) -> None:
    run("data", "list", "--json")
    names = [row["name"] for row in json.loads(capsys.readouterr().out)["datasets"]]
    assert {"cifar10", "cifar100", "svhn", "imagenet32", "300k", "textures", "digits"} <= set(names)
    run("data", "list")
    assert "cifar10" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    ["pretrain", "finetune", "evaluate run --ood x", "calibrate run --out x.safetensors", "predict x --detector y"],
)
def test_commands_that_read_pictures_take_a_number_of_workers(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "workers must be at least 1" in refused(capsys, *command.split(), "--workers", 0)


def test_help_names_every_option_of_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    run("finetune", "--help")
    text = capsys.readouterr().out
    for option in ("--id", "--outliers", "--checkpoint", "--method", "--margin", "--optimizer", "--freeze", "--seed"):
        assert option in text
    lines = " ".join(text.replace("│", " ").split())
    assert "[default: 0.9]" in lines and "[default: sgd; adamw for another library's network]" in lines


def test_help_shows_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    text = capsys.readouterr().out
    titles = [part.partition("\n  ")[0] for part in text.split("\n\n") if "\n  " in part and part[0] != " "]
    assert titles == ["Start", "Data", "Train", "Measure", "Use", "Paper", "Options"]
    for name in app:
        assert f"\n  {name}" in text or f", {name} " in text, name


def test_help_shows_a_command_of_the_users_own(capsys: pytest.CaptureFixture[str]) -> None:
    @app.command
    def counting() -> None:
        """Count what there is.

        One by one.
        """

    try:
        run("--help")
    finally:
        del app["counting"]
    assert "\nYours\n  counting  Count what there is.\n" in capsys.readouterr().out


def test_the_first_page_shows_the_way_to_a_detector(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    text = capsys.readouterr().out
    lines = [line.split()[:2] for line in text.splitlines() if line.split()[:1] == ["macs"]]
    assert lines == [["macs", name] for name in ("finetune", "evaluate", "calibrate", "predict")]


def test_the_documentation_names_the_json_of_every_command() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for command in (name for name in app if not name.startswith("-")):
        assert any(f"`{command}" in row for row in rows), command


@pytest.mark.parametrize("name", [name for group in COMMANDS.values() for name in group])
def test_the_list_of_commands_says_of_each_what_its_own_help_says(name: str) -> None:
    (summary,) = (commands[name][1] for commands in COMMANDS.values() if name in commands)
    function = app[name].default_command  # none of `macs data`, whose commands are its own
    assert function is None or app[name].help == function.__doc__, "all of it, not the summary alone"
    assert " ".join(app[name].help.partition("\n\n")[0].split()) == summary
