"""`macs doctor`."""

from typing import TYPE_CHECKING

from macs.cli._app import Data, Json, show

if TYPE_CHECKING:
    from macs.doctor import Diagnosis, ExtraState


def doctor(*, data: Data = None, json: Json = False) -> None:
    """Report what is installed, where networks run and why, which data is on disk, and how to get what is missing.

    Add its output to a bug report. It works without torch, and imports every package to see whether it works.

        macs doctor
        macs doctor --json
    """
    from macs.data.loading import data_root
    from macs.doctor import examine

    if data is not None:
        data_root(data)  # the user's mistake, if it is none; $MACS_DATA may be wrong, and the output says so
    examination = examine(data)
    show(text_of(examination), examination.as_dict(), json)


def text_of(examination: "Diagnosis") -> str:
    torch, runtime, data, cache = examination.torch, examination.onnxruntime, examination.data, examination.cache
    lines = [
        f"macs {examination.macs} in {examination.location}",
        f"Python {examination.python} on {examination.platform}",
    ]
    if isinstance(torch, str):
        lines.append(f"torch: {torch}")
    else:
        lines += [
            f"torch {torch.version}, threads: {torch.threads}",
            f"  device: {torch.device} ({torch.device_reason})",
            f"  precision: {torch.precision} ({torch.precision_reason})",
        ]
    lines.append(
        f"ONNX Runtime: {runtime}"
        if isinstance(runtime, str)
        else f"ONNX Runtime {runtime.version}: {', '.join(runtime.providers)}"
    )
    lines += ["", "Extras"]
    lines += [f"  {extra.name:<12} {state_of(extra)}" for extra in examination.extras]
    lines.append("")
    if isinstance(data, str):
        lines.append(f"Data: {data}")
    else:
        lines.append(f"Data in {data.root}")
        lines += [f"  {name:<16} {', '.join(splits)}" for name, splits in data.found.items()]
        lines += [f"  not there: {', '.join(data.missing)}"] if data.missing else []
    if isinstance(cache, str):
        lines.append(f"Cached outputs of networks: {cache}")
    else:
        megabytes = f"{cache.bytes / 1e6:,.0f} of at most {cache.limit / 1e6:,.0f} MB"
        lines.append(f"Cached outputs of networks in {cache.folder}: {megabytes}")
    if examination.advice:
        lines += ["", "What to do", *(f"  {step}" for step in examination.advice)]
    return "\n".join(lines)


def state_of(extra: "ExtraState") -> str:
    if extra.broken:
        return f"does not work: {', '.join(extra.broken)}"
    if extra.missing:
        return f"lacks {', '.join(extra.missing)}"
    return ", ".join(f"{name} {version}" for name, version in extra.versions.items())
