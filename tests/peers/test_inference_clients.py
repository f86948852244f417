"""Other people's clients of the Open Inference Protocol get the verdicts of `macs predict` from a running service.

Runs where tritonclient and kserve are installed: `make test-peers`.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import macs
from macs.data import ImageSet
from macs.detector import Detector, Runtime
from tiny import noise, stripes

pytest.importorskip("fastapi", reason="the service is not installed here: `make test-peers`")
pytest.importorskip("onnx")
running = pytest.importorskip("running")

pytestmark = pytest.mark.peers
OUTPUTS = ("index", "confidence", "p_value", "is_ood", "class")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    net = macs.nets.build("wrn-10-1", classes=3)
    path = tmp_path_factory.mktemp("served") / "d.onnx"
    Detector(net, "msp").calibrate(stripes(100, seed=5), keep=0.5).export(path)
    return path


@pytest.fixture(scope="module")
def address(exported: Path) -> Iterator[str]:
    with running.serving(exported, "--threads", 1) as service:
        yield service.url.removeprefix("http://")


@pytest.fixture(scope="module")
def pixels() -> NDArray[np.uint8]:
    return np.concatenate([stripes(10, seed=3).pixels[:], noise(10, seed=4).pixels[:]])


def same(found: dict[str, Any], exported: Path, pixels: NDArray[np.uint8]) -> None:
    expected = Runtime(exported).predict(ImageSet.from_array(pixels))
    assert np.asarray(found["index"]).tolist() == expected.index.tolist()
    assert np.asarray(found["is_ood"]).tolist() == expected.is_ood.tolist()
    assert 0 < expected.is_ood.sum() < len(pixels)
    names = [name.decode() if isinstance(name, bytes) else name for name in found["class"]]
    assert names == expected.class_
    np.testing.assert_allclose(found["confidence"], expected.confidence, rtol=1e-5)
    np.testing.assert_allclose(found["p_value"], expected.p_value, rtol=1e-5)


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient(address: str, exported: Path, pixels: NDArray[np.uint8], binary: bool) -> None:
    triton = pytest.importorskip("tritonclient.http")
    with triton.InferenceServerClient(address) as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("d")
        assert client.get_server_metadata()["name"] == "macs"
        assert [each["name"] for each in client.get_model_metadata("d")["inputs"]] == ["images", "files"]
        images = triton.InferInput("images", list(pixels.shape), "UINT8")
        images.set_data_from_numpy(pixels, binary_data=binary)
        wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in OUTPUTS]
        result = client.infer("d", [images], outputs=wanted, request_id="7")
        assert result.get_response()["id"] == "7"
        same({name: result.as_numpy(name) for name in OUTPUTS}, exported, pixels)
        every = client.infer("d", [images], model_version="1")  # all outputs, in the form that the client prefers
        same({name: every.as_numpy(name) for name in OUTPUTS}, exported, pixels)
        strict = client.infer("d", [images], parameters={"threshold": 2.0})
        assert strict.as_numpy("is_ood").all()


def test_tritonclient_with_image_files(address: str, exported: Path, pixels: NDArray[np.uint8]) -> None:
    triton = pytest.importorskip("tritonclient.http")
    with triton.InferenceServerClient(address) as client:
        files = triton.InferInput("files", [len(pixels)], "BYTES")
        files.set_data_from_numpy(np.array([running.png(image) for image in pixels], np.object_))
        result = client.infer("d", [files])
        same({name: result.as_numpy(name) for name in OUTPUTS}, exported, pixels)
        wrong = triton.InferInput("images", [1, 4], "UINT8")
        wrong.set_data_from_numpy(np.zeros((1, 4), np.uint8))
        with pytest.raises(Exception, match=r"The shape of images must be \[N, H, W, 3\]"):
            client.infer("d", [wrong])


@pytest.mark.parametrize("binary", [True, False])
def test_kserve(address: str, exported: Path, pixels: NDArray[np.uint8], binary: bool) -> None:
    kserve = pytest.importorskip("kserve")

    async def ask() -> Any:
        client = kserve.InferenceRESTClient(kserve.inference_client.RESTConfig(protocol="v2"))
        url = f"http://{address}"
        assert await client.is_server_live(url) and await client.is_server_ready(url)
        assert await client.is_model_ready(url, "d")
        images = kserve.InferInput("images", list(pixels.shape), "UINT8")
        images.set_data_from_numpy(pixels, binary_data=binary)
        return await client.infer(url, kserve.InferRequest("d", [images]), model_name="d")

    answer = asyncio.run(ask())
    found = {output.name: output.as_numpy().tolist() for output in answer.outputs}
    same(found, exported, pixels)
