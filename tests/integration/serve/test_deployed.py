"""The files in deploy/ and the settings of the guide in the programs that they are for: Prometheus, nginx, systemd.

Each test is skipped where its program is not installed (Debian: prometheus, nginx, systemd).
"""

import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
import yaml

from macs.serve.settings import ServeSettings
from repository import ROOT
from running import Running, form, png, serving, verdicts
from tiny import noise

DEPLOY = ROOT / "deploy"
ALERTS = Path(__file__).with_name("alerts.yaml")
GUIDE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
KEY = "a key for the test"


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not on the PATH: {', '.join(missing)}")


def run(*command: object) -> None:
    """A program that must succeed."""
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def started(*command: object, ready: str) -> Iterator[str]:
    """A program that runs until the block ends; what follows `ready` in the line of its log that says so."""
    with subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(60, process.kill)
        limit.start()
        try:
            log = ""
            while ready not in (line := process.stderr.readline()):
                assert line, f"{command[0]} ended, or was not ready within a minute: {log}"
                log += line
            limit.cancel()
            threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop it
            yield line.partition(ready)[2].strip()
        finally:
            limit.cancel()
            process.terminate()


@needs("promtool")
def test_every_alert_is_raised_beyond_its_threshold_and_not_before() -> None:
    run("promtool", "check", "rules", DEPLOY / "prometheus.yaml")
    run("promtool", "test", "rules", ALERTS)
    rules = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    tests = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    raised = {case["alertname"] for case in cases if "exp_alerts" in case}
    silent = {case["alertname"] for case in cases if "exp_alerts" not in case}
    assert raised == silent == {rule["alert"] for rule in rules}


def eventually(ask: Callable[[], object], wanted: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while (answer := ask()) != wanted:
        assert time.monotonic() < end, f"{answer} is not yet {wanted}"
        time.sleep(0.2)


class Prometheus:
    """A server's answers."""

    def __init__(self, address: str) -> None:
        self._client = httpx.Client(base_url=f"http://{address}/api/v1", timeout=60)

    def value(self, query: str) -> float | None:
        """Of the one series that a query finds, or None."""
        found = self._client.get("/query", params={"query": query}).json()["data"]["result"]
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def alerts(self) -> dict[str, str]:
        """Those that are pending or firing."""
        return {
            each["labels"]["alertname"]: each["state"] for each in self._client.get("/alerts").json()["data"]["alerts"]
        }

    def wait_for(self, alert: str, state: str) -> None:
        eventually(lambda: self.alerts().get(alert), state)


@contextmanager
def watching(service: Running, key: Path, folder: Path) -> Iterator[Prometheus]:
    """Prometheus with the guide's configuration and our rules, which asks the service once per second."""
    (text,) = re.findall(r"^```yaml\n(scrape_configs:.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    settings = yaml.safe_load(text) | {"rule_files": [str(DEPLOY / "prometheus.yaml")]}
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = settings["scrape_configs"]
    job["authorization"]["credentials_file"] = str(key)
    job["static_configs"] = [{"targets": [f"127.0.0.1:{service.port}"]}]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    options = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'metrics'}", "--web.listen-address=127.0.0.1:0"]
    with started("prometheus", *options, ready='msg="Listening on" address=') as address:
        yield Prometheus(address)


@pytest.mark.cluster
@needs("prometheus")
def test_prometheus_scrapes_the_service_and_raises_alerts(exported: Path, tmp_path: Path) -> None:
    """Noise for images, then a damaged file for a detector, then no service."""
    detector, key = tmp_path / "d.onnx", tmp_path / "key"
    shutil.copyfile(exported, detector)
    key.write_text(KEY, encoding="utf-8")
    images = {f"{i}.png": png(pixels) for i, pixels in enumerate(noise(60, seed=8).pixels[:])}
    with (
        serving(detector, "--threads", 1, "--drift-rate", 1e-3, "--api-key-file", key) as service,
        httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as client,
        watching(service, key, tmp_path) as prometheus,
    ):
        eventually(lambda: prometheus.value('up{job="macs"}'), 1)
        assert prometheus.alerts() == {}
        rows = verdicts(client.post("/v1/predict", files=form(images)))
        unknown = [row["name"] for row in rows if row["is_ood"]]
        for _ in range(3):
            verdicts(client.post("/v1/predict", files=form({f"{i}.png": images[unknown[0]] for i in range(60)})))
        prometheus.wait_for("MacsDrift", "firing")
        prometheus.wait_for("MacsManyUnknown", "pending")  # it fires half an hour later
        eventually(lambda: prometheus.value('macs_images_total{verdict="ood"}'), len(unknown) + 180)
        detector.write_bytes(b"not a detector")
        service.signal(signal.SIGHUP)
        service.event("reload failed")
        prometheus.wait_for("MacsReloadRefused", "firing")
        service.stop()
        prometheus.wait_for("MacsGone", "pending")


def nginx_settings(folder: Path, port: int, service: Running, path: str) -> Path:
    """The guide's block for a path, as it tells to write it, in the least of a configuration."""
    (block,) = re.findall(r"^    location / \{\n.*?^    \}\n", GUIDE, re.MULTILINE | re.DOTALL)
    if path != "/":
        (change,) = re.findall(r"\(`(proxy_pass [^`]*;)`\)", GUIDE)
        block = re.sub(r"proxy_pass .*?;", change, block.replace("location /", f"location {path}"))
    block = block.replace("127.0.0.1:8000", f"127.0.0.1:{service.port}")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"    {kind}_temp_path {folder / kind};\n" for kind in kinds)
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; master_process off; pid {folder / 'pid'}; error_log stderr notice;\nevents {{}}\n"
        f"http {{\n    access_log off;\n{folders}    server {{\n    listen 127.0.0.1:{port};\n{block}    }}\n}}\n",
        encoding="utf-8",
    )
    return file


@contextmanager
def proxied(service: Running, path: str, folder: Path) -> Iterator[str]:
    """The address of nginx before the service."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with started("nginx", "-e", "stderr", "-c", nginx_settings(folder, port, service, path), ready="event method"):
        yield f"http://127.0.0.1:{port}{path}"


@needs("nginx")
@pytest.mark.parametrize("path", ["/", "/detector/"])
def test_nginx_passes_on_the_page_and_verdicts(
    path: str, running: Running, client: httpx.Client, pictures: dict[str, bytes], tmp_path: Path
) -> None:
    with proxied(running, path, tmp_path) as address, httpx.Client(base_url=address, timeout=60) as outside:
        page = outside.get("")
        assert page.status_code == 200 and "</html>" in page.text
        links = [link for link in re.findall(r'(?:src|href)="([^"#]+)"', page.text) if not link.startswith("data:")]
        assert len(links) >= 3
        for link in links:
            assert outside.get(urljoin(str(page.url), link)).status_code == 200, link
        assert outside.get("v1/detector").json() == client.get("/v1/detector").json()
        assert len(b"".join(pictures.values())) > 16_384  # beyond this, nginx writes a body to disk before it goes on
        answers = [each.post("v1/predict", files=form(pictures)) for each in (outside, client)]
        assert verdicts(answers[0]) == verdicts(answers[1])


@needs("nginx")
def test_nginx_lets_through_what_the_service_takes_and_waits_for_it(running: Running, tmp_path: Path) -> None:
    most = ServeSettings().max_bytes
    with proxied(running, "/", tmp_path) as address, httpx.Client(base_url=address, timeout=60) as outside:
        answer = outside.post("v1/predict", content=bytes(most), headers={"Content-Type": "image/png"})
        assert answer.status_code == 200 and "error" in answer.json()["images"][0]  # the service's: zeros are no image
        answer = outside.post("v1/predict", content=bytes(most + 1), headers={"Content-Type": "image/png"})
        assert answer.status_code == 413 and "nginx" in answer.text
    (seconds,) = re.findall(r"proxy_read_timeout (\d+)s;", GUIDE)
    assert int(seconds) > 2 * ServeSettings().timeout


@needs("systemd-analyze")
def test_systemd_takes_the_unit_and_finds_it_well_locked(tmp_path: Path) -> None:
    """`verify` complains of settings that it does not know, and of programs that do not exist: hence another one."""
    text = (DEPLOY / "macs.service").read_text(encoding="utf-8")
    unit = tmp_path / "macs.service"
    unit.write_text(text.replace("/opt/macs/bin/macs", sys.executable), encoding="utf-8")
    run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
    run(
        "systemd-analyze", "security", "--offline=true", "--threshold=20", unit
    )  # tenths; 100 is a service without limits
