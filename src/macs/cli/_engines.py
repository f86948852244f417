"""The options `--engine` and `--address`: where the trainings of an experiment run."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter

from macs.core.errors import MacsError
from macs.core.files import is_url, output_folder
from macs.core.registry import import_from, unknown, users_code
from macs.core.settings import Name, Span

if TYPE_CHECKING:
    from macs.experiments.cells import Engine
    from macs.experiments.mirrors import Mirror

ENGINES = ("serial", "ray")


class Results(NamedTuple):
    """The folder that results are written to, and the URL that they go to from there, if any."""

    folder: Path
    mirror: "Mirror | None" = None

    def named(self, file: Path) -> str:
        return str(file) if self.mirror is None else self.mirror.named(file)


@dataclass(frozen=True)
class EngineChoice:
    """The options of a command that runs many trainings."""

    engine: Name = "serial"
    """serial: one training after the other. ray: many at a time as tasks of a Ray cluster, with --threads CPUs each;
    the results are the same. The folder of results must be one that all its machines share, or a URL of a store that
    fsspec knows, such as s3://bucket/sweep. Your own engine is module:Class, called with the data root."""

    address: str | None = None
    """For --engine ray: an existing cluster, as HOST:PORT, ray://HOST:PORT or auto [default: $RAY_ADDRESS, else this
    machine]."""

    gpus: float = 0.0
    """For --engine ray: GPUs of each training; a fraction lets several share one."""

    @contextmanager
    def results(self, where: str | Path) -> Iterator[Results]:
        """The folder of results; of one behind a URL a copy, whose changes are written back in the end."""
        if not is_url(str(where)):
            yield Results(output_folder(where))
            return
        if self.engine != "ray":
            raise MacsError(f"{where} is a URL, which --engine ray writes to; name a folder, or add --engine ray.")
        from macs.experiments.mirrors import Mirror, to_read

        with tempfile.TemporaryDirectory(prefix="macs-") as folder:
            mirror = Mirror(str(where), Path(folder))
            mirror.check_writable()
            mirror.pull(wanted=to_read)
            yield Results(mirror.folder, mirror)
            mirror.push()

    def make(self, data: Path | None, serial: "Engine", results: Results) -> "Engine":
        """Return the engine; `serial` is the one that the command uses by default."""
        Span(0, 1024).hold("--gpus", self.gpus)
        own = ":" in self.engine
        if not own and self.engine not in ENGINES:
            raise unknown("engine", self.engine, [*ENGINES, "module:Class"])
        if self.engine != "ray":
            for option, value in (("--address", self.address), ("--gpus", self.gpus)):
                if value:
                    raise MacsError(f"{option} is for --engine ray; add that, or leave {option} out.")
        if own:
            make = import_from(self.engine, "engine")
            with users_code(f"The engine {self.engine} cannot be made"):
                engine: Engine = make(data)
            return engine
        if self.engine == "serial":
            return serial
        from macs.core.clusters import connected
        from macs.experiments.ray_engine import RayEngine

        connected(self.address)  # a cluster that is not there is an error now, and not after the images are read
        return RayEngine(data, self.address, self.gpus, mirror=results.mirror)


EngineOptions = Annotated[EngineChoice, Parameter(name="*")]
SERIAL = EngineChoice()
