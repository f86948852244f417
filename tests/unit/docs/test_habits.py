"""The files that maintainers live by agree with each other: the public workflow, .ci/run, the Makefile, pre-commit."""

import re
import runpy
import tomllib

import yaml

from macs.core import __version__
from repository import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()


def commands_of(check: str) -> list[str]:
    """The commands of the suites of a check."""
    suites = runpy.run_path(str(ROOT / ".ci/suites.py"))
    return [
        suite.command for suite in (suites["nightly_suites"]() if check == "nightly" else suites["check_suites"](ROOT))
    ]


def test_every_marker_has_its_suite() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    left_out = set(re.findall(r"\w+", re.findall(r"not \(([^)]*)\)", options["addopts"])[0])) - {"or"}
    markers = {line.partition(":")[0] for line in options["markers"]} - {"peers"}
    assert left_out == markers
    run = " ".join(commands_of("check") + commands_of("nightly"))
    assert all(re.search(rf"-m '?{marker}\b", run) for marker in markers - {"data"}), run


def test_the_workflow_runs_every_suite() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    public = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in public and "make nightly" in public
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"][0] == "3.11"


def test_make_has_every_target_that_is_phony_and_that_a_suite_calls() -> None:
    phony = " ".join(re.findall(r"^\.PHONY: (.+)$", MAKEFILE, flags=re.MULTILINE)).split()
    targets = re.findall(r"^([\w-]+):", MAKEFILE, flags=re.MULTILINE)
    assert sorted(phony) == sorted(targets)
    for command in commands_of("check") + commands_of("nightly"):
        if called := re.match(r"make ([\w-]+)", command):
            assert called[1] in targets


def test_pre_commit_runs_the_linters_of_make_lint() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    programs = {hook["entry"].split()[0].rpartition("/")[2] for hook in local["hooks"]}
    lint = MAKEFILE.partition("\nruff:")[2].partition("\ndocs:")[0]
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
