"""The files in deploy/ and the guide to them agree with the service: its options, routes, metrics and requirements."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from macs.cli._app import app
from macs.serve.drift import RATE
from repository import ROOT

DEPLOY = ROOT / "deploy"
GUIDE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def container(name: str) -> dict[str, Any]:
    """The one container that a file runs."""
    spec = documents(name)[0]["spec"]
    (one,) = spec["predictor"]["containers"] if "predictor" in spec else spec["template"]["spec"]["containers"]
    return one


def options(arguments: list[str]) -> dict[str, Any]:
    """The arguments as the command line understands them; it raises an error where it does not."""
    _, bound, _ = app.parse_args(["serve", *arguments], exit_on_error=False, print_error=False)
    return bound.arguments


def instruction(name: str) -> list[str]:
    """The last one of a name in the container file."""
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(name).strip() for line in lines if line.startswith(name + " ")]


def test_the_container_runs_as_nobody_in_particular_and_listens_beyond_itself() -> None:
    assert instruction("USER") == ["10001:10001"]
    assert json.loads(instruction("ENTRYPOINT")[0]) == ["macs", "serve"]
    assert options(json.loads(instruction("CMD")[0]))["host"] == "0.0.0.0"
    for line in instruction("COPY"):
        *sources, _ = [part for part in line.split() if not part.startswith("--")]
        for source in sources:
            assert source.startswith("/") or (ROOT / source).exists()


def test_the_container_has_what_serving_needs_and_no_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (DEPLOY / "requirements.txt").read_text(encoding="utf-8").splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    runtime = {line for line in (ROOT / "runtime.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"}
    assert listed - {"-r ../runtime.txt"} == set(project["optional-dependencies"]["serve"]) - runtime
    assert not any(line.startswith("torch") for line in listed | runtime)


@pytest.mark.parametrize("name", ["kubernetes.yaml", "kserve.yaml"])
def test_containers_are_given_options_that_exist_and_no_rights(name: str) -> None:
    one = container(name)
    given = options(one["args"])
    assert given["host"] == "0.0.0.0" and given["threads"] == int(one["resources"]["limits"]["cpu"])
    ports = {given.get("port", 8000)}
    assert {port["containerPort"] for port in one["ports"]} == ports
    rights = one["securityContext"]
    assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
    assert rights["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", ["kubernetes.yaml", "kserve.yaml"])
def test_probes_ask_what_the_service_answers_without_a_key(name: str, client: httpx.Client) -> None:
    probes = [value["httpGet"]["path"] for key, value in container(name).items() if key.endswith("Probe")]
    assert len(probes) >= 2
    for path in probes:
        assert client.get(path).status_code == 200


def test_a_pod_is_given_the_time_that_accepted_requests_may_take() -> None:
    pod = documents("kubernetes.yaml")[0]["spec"]["template"]["spec"]
    settings = options(container("kubernetes.yaml")["args"])["settings"]
    assert pod["terminationGracePeriodSeconds"] > settings.drain + 2 * settings.timeout + 1


def test_every_object_of_kubernetes_means_the_same_deployment() -> None:
    deployment, service, scaler, budget = documents("kubernetes.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert labels == budget["spec"]["selector"]["matchLabels"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert service["spec"]["ports"][0]["targetPort"] == container("kubernetes.yaml")["ports"][0]["name"]


def test_every_alert_asks_for_metrics_that_the_service_has(client: httpx.Client) -> None:
    client.get("/v1/detector")
    content = client.get("/metrics").text
    names = {line.split()[2] for line in content.splitlines() if line.startswith("# TYPE ")}
    names |= set(re.findall(r"^(\w+)", content, re.MULTILINE))
    (group,) = documents("prometheus.yaml")[0]["groups"]
    for rule in group["rules"]:
        asked = set(re.findall(r"\bmacs_\w+", rule["expr"]))
        assert asked <= names or asked <= {f"{name}_total" for name in names}, rule["alert"]
        assert asked or rule["expr"].startswith("up{")
        # An increase from nothing to 1 is none for Prometheus: such a counter must be there from the start.
        for series in re.findall(r"increase\((\w+\{.*?\})\[", rule["expr"]):
            assert f"\n{series} 0.0\n" in content
        assert rule["annotations"]["summary"] and rule["expr"].count("(") == rule["expr"].count(")")
        assert f"`{rule['alert']}`" in GUIDE


def test_the_unit_of_systemd_starts_the_service_with_options_that_exist() -> None:
    lines = (DEPLOY / "macs.service").read_text(encoding="utf-8").splitlines()
    (start,) = (line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart="))
    program, command, *arguments = shlex.split(start)
    assert (Path(program).name, command) == ("macs", "serve")
    assert options(arguments)["api_key_file"].name == "key"
    assert "DynamicUser=yes" in lines and "ExecReload=/bin/kill -HUP $MAINPID" in lines


def test_the_guide_names_files_that_exist_and_its_yaml_can_be_read() -> None:
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL):
        if kind == "yaml":
            assert yaml.safe_load(text)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", GUIDE):
        assert target.startswith("https://") or (ROOT / "docs" / target).exists(), target
    assert all(f"../deploy/{path.name}" in GUIDE for path in DEPLOY.iterdir() if path.suffix != ".dockerignore")
    drift = (ROOT / "docs" / "drift.md").read_text(encoding="utf-8")
    for line in re.findall(r"^    macs serve (.*)$", GUIDE + drift, re.MULTILINE):
        options(shlex.split(line, comments=True))
    assert f"{RATE:.0e}".replace("e-0", "e-") == "1e-8" and "--drift-rate 1e-8" in drift
