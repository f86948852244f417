"""Kubernetes' schemas, and the types of KServe's and Kubernetes' clients, take every field of the manifests in deploy/.

Runs where kubernetes-validate and kserve are installed: `make test-peers`.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.peers
DEPLOY = Path(__file__).parents[2] / "deploy"
PLAIN = {"str": str, "int": int, "bool": bool, "float": float, "object": object}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_kubernetes_schemas(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    objects = documents("kubernetes.yaml")
    assert len(objects) == 4
    for each in objects:
        validate.validate(each, version, strict=True)
    del objects[0]["spec"]["selector"]
    with pytest.raises(validate.ValidationError):
        validate.validate(objects[0], version, strict=True)


def typed(value: Any, kind: str, where: str = "") -> Any:
    """The value as a class of KServe's or Kubernetes' client, which demands the fields that must be there."""
    import kserve
    from kubernetes import client

    if (element := re.fullmatch(r"[Ll]ist\[(.+)\]", kind)) and isinstance(value, list):
        return [typed(each, element[1], f"{where}[{index}]") for index, each in enumerate(value)]
    if (element := re.fullmatch(r"[Dd]ict[(\[]str, (.+)[)\]]", kind)) and isinstance(value, dict):
        return {key: typed(each, element[1], f"{where}.{key}") for key, each in value.items()}
    if kind in PLAIN:
        assert isinstance(value, PLAIN[kind]), f"{where}: {value!r} is no {kind}"
        return value
    model = getattr(kserve, kind, None) or getattr(client, kind)
    fields = {json: name for name, json in model.attribute_map.items()}
    assert set(value) <= set(fields), f"{where}: {kind} has no {set(value) - set(fields)}"
    return model(
        **{fields[key]: typed(each, model.openapi_types[fields[key]], f"{where}.{key}") for key, each in value.items()}
    )


def test_types_of_clients() -> None:
    pytest.importorskip("kserve")
    (service,) = documents("kserve.yaml")
    assert typed(service, "V1beta1InferenceService").spec.predictor.containers[0].name == "kserve-container"
    for each in documents("kubernetes.yaml"):
        version = each["apiVersion"].rpartition("/")[2].upper()
        assert typed(each, version + each["kind"]).metadata.name == "macs"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"maxReplica": 8}, "V1beta1PredictorSpec has no {'maxReplica'}"),
        ({"maxReplicas": "8"}, "maxReplicas: '8' is no int"),
        ({"containers": [{"image": "macs"}]}, "name"),
    ],
)
def test_a_mistake_in_the_manifest_is_found(change: dict[str, Any], complaint: str) -> None:
    pytest.importorskip("kserve")
    (service,) = documents("kserve.yaml")
    service["spec"]["predictor"] |= change
    with pytest.raises((AssertionError, ValueError), match=re.escape(complaint)):
        typed(service, "V1beta1InferenceService")
