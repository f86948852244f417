"""The files that maintainers live by agree with each other: the public workflow, .ci/run, the Makefile, pre-commit."""

import re
import tomllib
from pathlib import Path

import yaml

from macs.core.version import __version__

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"make [\w-]+|pytest (?:-m \w+|tests/\w+)")


def test_the_workflow_runs_every_step_of_the_check() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = workflow["jobs"]["more"]["strategy"]["matrix"]["step"]
    steps += [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    public = {found for step in steps for found in STEP.findall(step)}
    ours = set(STEP.findall((ROOT / ".ci/run").read_text()))
    # Real data is not in the repository.
    assert ours - {"pytest -m data"} <= public, ours - public
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"][0] == "3.11"


def test_make_has_every_target_that_is_phony() -> None:
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.+)$", text, flags=re.MULTILINE)
    targets = re.findall(r"^([\w-]+):", text, flags=re.MULTILINE)
    assert sorted(phony.split()) == sorted(targets)


def test_pre_commit_runs_the_linters_of_make_lint() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    programs = {hook["entry"].split()[0].rpartition("/")[2] for hook in local["hooks"]}
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    assert programs == set(re.findall(r"\$\(BIN\)/([\w-]+)", lint))


def test_one_version_is_stated_everywhere() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_list_of_extras_is_complete() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs/installing.md").read_text()
    for name in set(extras) - {"dev", "docs"}:
        assert f"`{name}`" in page, name
    tried = (ROOT / ".ci/extras.py").read_text()
    for name in set(extras) - {"dev"}:  # by `make package-extras`
        assert f"\ndef {name.replace('-', '_')}(files: Path)" in tried, name
