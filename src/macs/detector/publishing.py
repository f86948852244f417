"""Publish a detector: its files, a record of them and a model card, in a folder or on the Hugging Face hub.

    detector.save_pretrained("folder"); detector.push_to_hub("org/name", evaluation=evaluation)
    macs push detector.safetensors org/name --onnx --evaluation evaluation.json

The card is made from the calibration record and from the last evaluation. A README.md that exists is left as it is.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from macs.core import __version__
from macs.core.errors import MacsError
from macs.core.files import input_file, output_folder, write_atomically, write_text
from macs.core.text import in_a_cell, printable
from macs.detector import hub
from macs.detector.inspection import Inspection, inspect
from macs.detector.metadata import DetectorMetadata

if TYPE_CHECKING:
    from macs.evaluation import Evaluation

FOLDER = Path(__file__).parent
PRETRAINED = "pretrained"  # the source of weights that a library downloaded
MOST_EVALUATION = 2**27  # bytes
# Licences that the hub knows by these names; of any other it takes "other", and its name beside that.
LICENSES = frozenset(
    {
        *("apache-2.0", "mit", "isc", "unlicense", "bsd", "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear"),
        *("gpl-2.0", "gpl-3.0", "lgpl-3.0", "agpl-3.0", "mpl-2.0", "openrail", "apple-ascl", "apple-amlr", "gemma"),
        *("cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nc-nd-4.0"),
        *("unknown", "other"),
    }
)


@dataclass(frozen=True)
class Pushed:
    """What was pushed, and where it is."""

    repo: str
    commit: str
    files: tuple[str, ...]
    card_kept: bool  # a README.md was there before

    @property
    def address(self) -> str:
        return f"hf://{self.repo}@{self.commit}"

    def as_dict(self) -> dict[str, Any]:
        return {"repo": self.repo, "commit": self.commit, "address": self.address, "files": list(self.files)}

    def __str__(self) -> str:
        card = f"\nThe {hub.CARD} that was there is unchanged." if self.card_kept else ""
        return (
            f"Pushed {', '.join(self.files)} to {self.repo}.{card}\n"
            f"This version is {self.address}; the newest one is hf://{self.repo}."
        )


class OnTheHub:
    """The methods of a detector that publish it and load a published one."""

    @classmethod
    def load(cls, path: str | Path, net: Any = None, score: Any = None) -> Self:
        raise NotImplementedError(f"{cls.__name__} does not define `load`")

    def save(self, path: str | Path) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define `save`")

    def export(self, path: str | Path) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define `export`")

    @classmethod
    def from_pretrained(cls, name: str | Path, revision: str | None = None, net: Any = None, score: Any = None) -> Self:
        """Load a published detector from the Hugging Face hub or from a folder; no code from it is run.

        The files are kept in the cache folder of `huggingface_hub`, and checked against the SHA-256 that was recorded
        when they were pushed. With HF_HUB_OFFLINE=1, only the cache is used.

        Parameters
        ----------
        name
            A repository, "org/name" or "hf://org/name", or a folder that `save_pretrained` wrote.
        revision
            A commit, a branch or a tag; only a commit always means the same files. By default the newest version.
        net, score
            As in `load`.

        Returns
        -------
        Detector
            The calibrated detector.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> macs.Detector(net).calibrate(macs.data.load("digits", "val")).save_pretrained("digits-detector")
        >>> macs.Detector.from_pretrained("digits-detector")
        <Detector wrn-10-1, MSP(), keeps 0.95 of digits>
        """
        if hub.is_address(name):
            address = hub.parse(name)
            if revision is not None and address.revision is not None:
                raise MacsError(f"{name} names a revision, and so does revision={revision!r}; give one of them.")
            address = address._replace(revision=revision or address.revision)
        elif Path(name).is_dir():
            if revision is not None:
                raise MacsError(f"{name} is a folder, which has no revisions; leave revision out.")
            return cls.load(hub.in_folder(Path(name), [hub.PYTORCH]), net, score)
        else:
            address = hub.parse(f"hf://{name}")._replace(revision=revision)
        return cls.load(hub.download(address, [hub.PYTORCH]), net, score)

    def save_pretrained(
        self,
        folder: str | Path,
        *,
        onnx: bool = False,
        evaluation: "Evaluation | Mapping[str, Any] | None" = None,
        license: str | None = None,
    ) -> None:
        """Write the files of a published detector into a folder: the detector, a record of its hash, and a model card.

        Parameters
        ----------
        folder
            The folder; a README.md in it is left as it is.
        onnx
            Export the detector as ONNX too.
        evaluation
            The last evaluation, for the card: what `evaluate` returned, or that as a dict.
        license
            Licence of the weights, for example "apache-2.0"; by default that of published weights they started from.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> macs.Detector(net).calibrate(macs.data.load("digits", "val")).save_pretrained("digits-detector")
        """
        with tempfile.TemporaryDirectory() as temporary:
            files = self._files(Path(temporary), onnx)
            write_folder(files, Path(folder), f"org/{Path(folder).resolve().name}", evaluation, license)

    def push_to_hub(
        self,
        repo: str,
        *,
        onnx: bool = False,
        evaluation: "Evaluation | Mapping[str, Any] | None" = None,
        license: str | None = None,
        private: bool = False,
        revision: str | None = None,
    ) -> Pushed:
        """Publish the detector on the Hugging Face hub, with a model card; a README.md that exists is left as it is.

        Parameters
        ----------
        repo
            The repository, "org/name"; it is created if it does not exist.
        onnx, evaluation, license
            As in `save_pretrained`.
        private
            Create a repository that only its owners see.
        revision
            The branch to push to; by default the main one.

        Returns
        -------
        Pushed
            The files and the commit; `address` is what `from_pretrained` takes to load exactly this version.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> detector = macs.Detector(net).calibrate(macs.data.load("digits", "val"))
        >>> pushed = detector.push_to_hub("org/digits-detector")  # doctest: +SKIP
        """
        check_repository(repo)
        with tempfile.TemporaryDirectory() as temporary:
            return push(self._files(Path(temporary), onnx), repo, evaluation, license, private, revision)

    def _files(self, folder: Path, onnx: bool) -> list[Path]:
        files = [folder / hub.PYTORCH, *([folder / hub.ONNX] if onnx else [])]
        self.save(files[0])
        if onnx:
            self.export(files[1])
        return files


def push(
    files: list[Path],
    repo: str,
    evaluation: "Evaluation | Mapping[str, Any] | None" = None,
    license: str | None = None,
    private: bool = False,
    revision: str | None = None,
) -> Pushed:
    """Push detector files to a repository of the hub, all in one commit."""
    check_repository(repo)
    doing = hub.explaining(hub.Address(repo, revision), "push to {} on")
    with tempfile.TemporaryDirectory() as temporary, doing, hub.quiet_hub():
        from huggingface_hub import CommitOperationAdd, HfApi

        written = write_folder(files, Path(temporary), repo, evaluation, license)
        api = HfApi(library_name="macs-ood", library_version=__version__)
        api.create_repo(repo, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        kept = api.file_exists(repo, hub.CARD, revision=revision)
        names = tuple(file.name for file in written if not (kept and file.name == hub.CARD))
        additions = [CommitOperationAdd(name, Path(temporary) / name) for name in names]
        done = api.create_commit(repo, additions, commit_message=f"Detector of macs {__version__}", revision=revision)
    return Pushed(repo, done.oid, names, kept)


def check_repository(repo: str) -> None:
    """Refuse a name that no repository of the hub can have, and a Python without the client, before the work."""
    if find_spec("huggingface_hub") is None:
        raise MacsError("Pushing needs huggingface_hub: pip install 'macs-ood[hub]'.")
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repo):
        raise MacsError(f"{printable(repo)} is no repository of the hub; write org/name.")


def write_folder(
    files: list[Path],
    folder: Path,
    repo: str,
    evaluation: "Evaluation | Mapping[str, Any] | None" = None,
    license: str | None = None,
) -> list[Path]:
    """Write detector files under their published names, the record of their hashes, and the card; return them all."""
    inspections = {(hub.ONNX if file.suffix == ".onnx" else hub.PYTORCH): inspect(file) for file in files}
    first = next(iter(inspections.values())).metadata
    measured = None if evaluation is None else as_measured(evaluation, first)
    card = model_card(first, inspections, repo, measured, license)
    output_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, inspection in inspections.items():
        write_atomically(folder / name, partial(shutil.copyfile, inspection.path))
    write_text(folder / hub.CONFIG, json.dumps(config(first, inspections), indent=2) + "\n")
    written = [folder / name for name in (*inspections, hub.CONFIG, hub.CARD)]
    if not (folder / hub.CARD).exists():
        write_text(folder / hub.CARD, card)
    return written


def config(metadata: DetectorMetadata, inspections: Mapping[str, Inspection]) -> dict[str, Any]:
    """Return the content of config.json: what the hub shows about the detector, and the hashes of its files."""
    record = metadata.calibration
    return {
        "library_name": "macs-ood",
        "macs": metadata.macs,
        "net": metadata.net,
        "classes": list(metadata.classes),
        "score": metadata.score,
        "keep": record.keep,
        "thresholds": [threshold.value for threshold in record.thresholds],
        "files": {name: {"bytes": found.bytes, "sha256": found.sha256} for name, found in inspections.items()},
    }


def read_evaluation(path: Path) -> dict[str, Any]:
    """Return what `macs evaluate --detector ... --json` printed into a file."""
    path = input_file(path, "evaluation", "make one with: macs evaluate --detector FILE ... --json > evaluation.json")
    try:
        content = path.read_text(encoding="utf-8") if path.stat().st_size <= MOST_EVALUATION else ""
        values = json.loads(content)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise MacsError(f"{path} is not what `macs evaluate --json` prints; run it again and keep its output.")
    return values


def as_measured(evaluation: "Evaluation | Mapping[str, Any]", metadata: DetectorMetadata) -> dict[str, Any]:
    """Return the numbers of an evaluation that a card shows; raise if they are not of this detector's score."""
    values = evaluation if isinstance(evaluation, Mapping) else evaluation.as_dict()
    try:
        confidence = str(values["conventions"]["confidence"]).partition(";")[0]
        sets = {
            str(name): {"images": int(one["images"]), **{metric: float(one["full"][metric]) for metric in one["full"]}}
            for name, one in values["ood"].items()
        }
        known = values["id"]
        measured = {"id": str(known["name"]), "images": int(known["images"]), "accuracy": float(known["accuracy"])}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MacsError(
            "The evaluation is not one of a detector; take what detector.evaluate returns, or what `macs evaluate "
            "--detector FILE --json` prints."
        ) from None
    if confidence != metadata.calibration.score:
        raise MacsError(
            f"The evaluation measured the score {printable(confidence)}, but this detector has "
            f"{metadata.calibration.score}; evaluate the detector with --detector."
        )
    return {**measured, "sets": sets}


def model_card(
    metadata: DetectorMetadata,
    inspections: Mapping[str, Inspection],
    repo: str,
    measured: dict[str, Any] | None,
    license: str | None,
) -> str:
    """Return the card in Markdown, with the front matter that the hub reads."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from macs import metrics

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=False,  # it is Markdown; names from outside are made safe by `in_a_cell`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=in_a_cell,
    )
    base, base_license = base_of(metadata)
    license = license or base_license
    start = (metadata.recipe or {}).get("start") or {}
    title = repo.partition("/")[2]
    return front_matter(metadata, title, measured, license, base) + environment.get_template("hub_card.md").render(
        title=title,
        repo=repo,
        metadata=metadata,
        record=metadata.calibration,
        calibrated_on=last_part(metadata.calibration.data),
        files=inspections,
        onnx=hub.ONNX in inspections,
        pytorch=hub.PYTORCH in inspections,
        measured=measured,
        known=None if measured is None else last_part(measured["id"]),
        shown=metrics.shown(),
        license=license,
        base=base,
        start=last_part(str(start.get("source", ""))),
        method=(metadata.recipe or {}).get("method"),
        version=__version__,
    )


def last_part(name: str) -> str:
    """Return the name of a set or a file without the folders that it lies in, which are nobody's business."""
    return name.replace("\\", "/").rstrip("/").rpartition("/")[2] if not name.startswith("hf/") else name


def front_matter(
    metadata: DetectorMetadata, title: str, measured: dict[str, Any] | None, license: str | None, base: str | None
) -> str:
    """Return what the hub reads about a detector, as YAML between two lines of dashes."""
    from macs import metrics

    names = [metric.name for metric in metrics.shown()]
    train = (((metadata.recipe or {}).get("data") or {}).get("train") or {}).get("source", "")
    datasets = [str(train).removeprefix("hf/")] if str(train).startswith("hf/") else []
    values: dict[str, Any] = {
        "library_name": "macs-ood",
        "pipeline_tag": "image-classification",
        "tags": ["out-of-distribution-detection", "ood-detection", "macs-ood", metadata.score],
        **({} if license is None else license_fields(license, base)),
        **({"base_model": base} if base else {}),
        **({"datasets": datasets} if datasets else {}),
        "metrics": ["accuracy", *names] if measured else ["accuracy"],
    }
    if measured:
        values["model-index"] = [{"name": title, "results": list(map_results(measured, names))}]
    # JSON is YAML, and quotes every name from outside.
    lines = [f"{key}: {json.dumps(value, ensure_ascii=True)}" for key, value in values.items()]
    return "\n".join(["---", *lines, "---", "", ""])


def license_fields(license: str, base: str | None) -> dict[str, str]:
    """Return a licence in the terms of the hub, which refuses a card with a licence that it does not know."""
    known = license.lower()
    if known in LICENSES:
        return {"license": known}
    name = re.sub(r"[^a-z0-9.]+", "-", known).strip("-")
    where = {"license_link": f"https://huggingface.co/{base}"} if base else {}
    return {"license": "other", **({"license_name": name} if name else {}), **where}


def map_results(measured: dict[str, Any], names: list[str]) -> list[dict[str, Any]]:
    """Return the results as the hub's model index has them, with the convention of each metric in its name."""
    from macs import metrics

    task = {"type": "image-classification", "name": "Out-of-distribution detection"}
    known = last_part(measured["id"])
    return [
        {
            "task": task,
            "dataset": {"type": last_part(name), "name": f"{known} against {last_part(name)}"},
            "metrics": [
                {"type": metric, "value": one[metric], "name": metrics.get(metric).convention}
                for metric in names
                if metric in one
            ],
        }
        for name, one in measured["sets"].items()
    ]


def base_of(metadata: DetectorMetadata) -> tuple[str | None, str | None]:
    """Return the published weights that a network started from, as a repository of the hub, and their licence."""
    start = (metadata.recipe or {}).get("start") or {}
    library, _, model = metadata.net.partition("/")
    if start.get("source") != PRETRAINED or library not in ("timm", "hf"):
        return None, None
    if library == "hf":
        return model, _license_on_hub(model)
    try:
        import timm

        published = timm.get_pretrained_cfg(model)
    except Exception:  # timm is not installed, or its torchvision does not load
        return None, None
    if published is None:
        return None, None
    hub_id = published.hf_hub_id or ""
    if hub_id.endswith("/"):
        hub_id += f"{published.architecture}.{published.tag}" if published.tag else str(published.architecture)
    return hub_id or None, published.license


def _license_on_hub(repo: str) -> str | None:
    """Return the licence that a repository of the hub states; none if the hub does not answer."""
    try:
        from huggingface_hub import HfApi

        card = HfApi().model_info(repo, timeout=10).card_data
    except Exception:  # the card says then that the licence is not known
        return None
    if card is None:
        return None
    license = card.get("license")
    if license == "other":
        license = card.get("license_name") or license
    return license if isinstance(license, str) else None
