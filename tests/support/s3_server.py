"""An S3-compatible server on this machine, for tests of URLs."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bucket() -> Iterator[str]:
    """The URL of an empty bucket; while it exists, the environment leads S3 clients, also those of children, to it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    os.environ |= settings
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()  # of an earlier server
    try:
        while True:
            try:
                s3fs.S3FileSystem(skip_instance_cache=True).mkdir("bucket")
                break
            except Exception:
                assert server.poll() is None
                time.sleep(0.5)
        yield "s3://bucket"
    finally:
        server.kill()
        server.wait()
        for name in settings:
            os.environ.pop(name, None)
