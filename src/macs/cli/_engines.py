"""The options `--engine` and `--address`: where the trainings of an experiment run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from macs.core.errors import MacsError
from macs.core.settings import Span

if TYPE_CHECKING:
    from macs.experiments.engine import Engine


@dataclass(frozen=True)
class EngineChoice:
    """The options of a command that runs many trainings."""

    engine: Literal["serial", "ray"] = "serial"
    """serial: one training after the other. ray: many at a time as tasks of a Ray cluster, with --threads CPUs each;
    the results are the same. The folder of results must be one that all its machines share."""

    address: str | None = None
    """For --engine ray: an existing cluster, as HOST:PORT, ray://HOST:PORT or auto [default: $RAY_ADDRESS, else this
    machine]."""

    gpus: float = 0.0
    """For --engine ray: GPUs of each training; a fraction lets several share one."""

    def make(self, data: Path | None, serial: "Engine") -> "Engine":
        """The engine; `serial` is the one that the command uses by default."""
        Span(0, 1024).hold("--gpus", self.gpus)
        if self.engine == "serial":
            for option, value in (("--address", self.address), ("--gpus", self.gpus)):
                if value:
                    raise MacsError(f"{option} is for --engine ray; add that, or leave {option} out.")
            return serial
        from macs.core.clusters import connected
        from macs.experiments.ray_engine import RayEngine

        connected(self.address)  # a cluster that is not there is an error now, and not after the images are read
        return RayEngine(data, self.address, self.gpus)


EngineOptions = Annotated[EngineChoice, Parameter(name="*")]
SERIAL = EngineChoice()
