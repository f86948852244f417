"""ImageSet: uint8 images, optionally with labels and class names. Everything that reads images returns one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macs.core.errors import MacsError, first_line
from macs.core.files import input_folder, user_path
from macs.data.dataset_adapters import (
    PREFIX,
    DatasetPictures,
    HFPictures,
    image_column,
    label_column,
    listed_classes,
    open_hf,
    read_labels,
    split_of,
)
from macs.data.image_files import ImageList, images_under, labels_by_folder, printable_name
from macs.data.pixels import (
    FilePictures,
    OnBroken,
    PicturePixels,
    Pixels,
    Progress,
    Subset,
    check_images,
    prepared,
    readable_files,
)
from macs.data.preparation import Preparation, preparation_from
from macs.data.spec import IN_MEMORY, DataSpec, Part, fingerprint, short_hash

MAX_CLASSES = 1_000_000  # a label beyond this is not a class number


@dataclass(frozen=True, eq=False)  # comparing arrays does not give one bool
class ImageSet:
    name: str
    pixels: Pixels  # uint8, N x size x size x 3
    labels: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    mirror: bool = True  # False if a mirrored image means something else, as for digits
    files: tuple[str, ...] = ()  # the file of each image, if the images come from files
    origin: DataSpec = IN_MEMORY  # how the set was loaded; `spec` adds the number of images and their fingerprint
    preparation: Preparation | None = None  # how pictures became these pixels; None if they came as pixels

    def __post_init__(self) -> None:
        self._check_pixels()
        object.__setattr__(self, "classes", class_names(self.name, self.classes))
        if self.labels is not None:
            object.__setattr__(self, "labels", whole_numbers(self.name, self.labels))
        for what, values in (("labels", self.labels), ("file names", self.files or None)):
            if values is not None and len(values) != len(self):
                raise MacsError(f"{self.name} has {len(self)} images but {len(values)} {what}; give one per image.")
        if self.labels is not None and not (self.labels.min() >= 0 and self.labels.max() < len(self.classes)):
            span = f"{self.labels.min()} to {self.labels.max()}"
            raise MacsError(f"{self.name} has labels {span} for {len(self.classes)} classes; count labels from 0.")

    def _check_pixels(self) -> None:
        check_images(self.name, self.pixels)

    def __repr__(self) -> str:
        count = len(self.classes)
        classes = "no labels" if self.labels is None else f"{count:,} class{'es' if count > 1 else ''}"
        return f"<ImageSet {self.name}: {len(self):,} images of {self.size} x {self.size} pixels, {classes}>"

    @classmethod
    def from_array(
        cls,
        array: ArrayLike,
        labels: ArrayLike | None = None,
        classes: Sequence[str] = (),
        name: str = "array",
        mirror: bool = True,
    ) -> ImageSet:
        """Make a set of images in memory.

        Parameters
        ----------
        array
            uint8 pixels, N x size x size x 3.
        labels
            One class number per image.
        classes
            Names of the classes; by default their numbers.
        name
            Name of the set, in messages and tables.
        mirror
            Whether a mirrored image means the same, so that training may flip it.

        Returns
        -------
        ImageSet
            The images, which are not copied.

        Examples
        --------
        >>> import macs, numpy as np
        >>> macs.ImageSet.from_array(np.zeros((2, 8, 8, 3), np.uint8), labels=[0, 1], classes=["cat", "dog"])
        <ImageSet array: 2 images of 8 x 8 pixels, 2 classes>
        """
        pixels = cls._pixels(array, f"The images of {name}")
        if labels is None:
            return cls(name, pixels, None, class_names(name, classes), mirror)
        numbers = whole_numbers(name, labels)
        names = class_names(name, classes) or numbers_as_names(numbers)
        return cls(name, pixels, numbers, names, mirror)

    @classmethod
    def _pixels(cls, array: ArrayLike, what: str) -> Pixels:
        return as_array(array, what)

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        size: int | None = None,
        *,
        name: str = "",
        labelled: bool = True,
        mirror: bool = True,
        broken: OnBroken = "stop",
        progress: Progress | None = None,
        preparation: Preparation | None = None,
    ) -> ImageSet:
        """Make a set of every image below a folder, in sorted order: shorter side resized, centre cropped.

        The folders directly inside it name the classes, as for torchvision's ImageFolder; there are no labels if there
        are no such folders. Small folders are decoded now, larger ones as they are used. A network with another
        preparation that is given this set prepares the files again.

        Parameters
        ----------
        path
            The folder.
        size
            Edge of the square images, 32 by default.
        name
            Name of the set; by default that of the folder.
        labelled
            Whether the folders inside are classes.
        mirror
            Whether a mirrored image means the same, so that training may flip it.
        broken
            "stop" raises if an image cannot be read; "skip" first reads all images once, and leaves out those that
            cannot be read, with one warning.
        progress
            Called as `progress(done, total)` while images are decoded.
        preparation
            In place of `size`: prepare the images as a network expects them, with `preparation=net.preparation`.

        Returns
        -------
        ImageSet
            The images, with labels if there are class folders.

        Examples
        --------
        >>> import macs
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> for name in ("cat", "dog"):
        ...     Path("pets", name).mkdir(parents=True)
        ...     Image.new("RGB", (60, 40)).save(f"pets/{name}/1.png")
        >>> macs.ImageSet.from_folder("pets", size=24)
        <ImageSet pets: 2 images of 24 x 24 pixels, 2 classes>
        """
        folder, preparation = input_folder(path), preparation_from(size, preparation)
        names = images_under(folder)
        names = [names[i] for i in readable_files(folder, names, broken, folder, progress)]
        labels, classes = labels_by_folder(folder, names) if labelled else (None, ())
        pixels = PicturePixels(FilePictures(folder, names), preparation, progress)
        files = tuple(map(printable_name, names))
        origin = DataSpec(printable_name(path), labelled=labelled, broken=broken)
        name = name or folder.resolve().name
        return cls(name, pixels, labels, classes, mirror, files, origin, preparation.geometry)

    @classmethod
    def from_files(
        cls,
        paths: str | Path | Sequence[str | Path],
        size: int | None = None,
        *,
        name: str = "images",
        preparation: Preparation | None = None,
    ) -> ImageSet:
        """Make a set, without labels, of the images in the given files, in the given order.

        Parameters
        ----------
        paths
            One path or several.
        size, name, preparation
            As in `from_folder`.

        Returns
        -------
        ImageSet
            The images.

        Examples
        --------
        >>> import macs
        >>> from PIL import Image
        >>> Image.new("RGB", (60, 40)).save("holiday.png")
        >>> macs.ImageSet.from_files("holiday.png")
        <ImageSet images: 1 images of 32 x 32 pixels, no labels>
        """
        names = [str(user_path(path)) for path in ([paths] if isinstance(paths, str | Path) else paths)]
        preparation, files = preparation_from(size, preparation), tuple(map(printable_name, names))
        pixels = PicturePixels(FilePictures(Path(), names), preparation)
        return cls(name, pixels, files=files, preparation=preparation.geometry)

    @classmethod
    def from_list(
        cls,
        file: str | Path,
        size: int | None = None,
        *,
        root: str | Path | None = None,
        classes: Sequence[str] = (),
        name: str = "",
        labelled: bool = True,
        mirror: bool = True,
        broken: OnBroken = "stop",
        progress: Progress | None = None,
        preparation: Preparation | None = None,
    ) -> ImageSet:
        """Make a set of the images that a text file lists: on each line the path of a picture, and its label.

        Parameters
        ----------
        file
            The list.
        size
            Edge of the square images, 32 by default.
        root
            Where paths start; by default the list's own folder.
        classes
            Names of the classes in order; by default those of a file classes.txt beside the list, if there is one.
            Labels are class numbers or these names.
        name
            Name of the set; by default that of the list.
        labelled, mirror, broken, progress, preparation
            As in `from_folder`.

        Returns
        -------
        ImageSet
            The images, in the order of the list.

        Examples
        --------
        >>> import macs
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> Image.new("RGB", (60, 40)).save("1.png")
        >>> _ = Path("pets.txt").write_text("1.png dog")
        >>> macs.ImageSet.from_list("pets.txt", classes=["cat", "dog"]).labels
        array([1])
        """
        images, preparation = ImageList.read(file), preparation_from(size, preparation)
        base = images.file.parent if root is None else input_folder(root)
        images.check_files(base)
        labels, names = images.numbered(class_names(str(file), classes)) if labelled else (None, ())
        kept = readable_files(base, images.paths, broken, images.file, progress)
        paths, labels = [images.paths[i] for i in kept], None if labels is None else labels[kept]
        pixels = PicturePixels(FilePictures(base, paths), preparation, progress)
        start = "" if root is None else printable_name(root)
        origin = DataSpec(printable_name(file), base=start, labelled=labelled, broken=broken)
        files = tuple(map(printable_name, paths))
        return cls(name or images.file.stem, pixels, labels, names, mirror, files, origin, preparation.geometry)

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        size: int | None = None,
        *,
        classes: Sequence[str] = (),
        name: str = "",
        labelled: bool = True,
        mirror: bool = True,
        source: str = "",
        progress: Progress | None = None,
        preparation: Preparation | None = None,
    ) -> ImageSet:
        """Make a set of a map-style dataset, as in torch or torchvision, with its labels and `dataset.classes`.

        Parameters
        ----------
        dataset
            Has len(dataset) and dataset[i]. Items are a picture, or a picture and its class number; pictures are PIL
            images, or uint8 arrays or tensors.
        size
            Edge of the square images, 32 by default.
        classes
            Names of the classes; by default `dataset.classes`, else their numbers.
        name
            Name of the set; by default that of the dataset's class.
        source
            Name or path by which `macs.data.load` finds the same images; without it the set cannot be loaded again
            from its spec.
        labelled, mirror, progress, preparation
            As in `from_folder`.

        Returns
        -------
        ImageSet
            The images, read from the dataset as they are used.

        Examples
        --------
        >>> import macs
        >>> from PIL import Image
        >>> macs.ImageSet.from_dataset([(Image.new("RGB", (60, 40)), 0), (Image.new("RGB", (50, 50)), 1)], size=24)
        <ImageSet list: 2 images of 24 x 24 pixels, 2 classes>
        """
        name, preparation = name or type(dataset).__name__, preparation_from(size, preparation)
        pictures = DatasetPictures(dataset, name)
        pictures.check_repeatable()
        labels = pictures.labels() if labelled else None
        numbers = None if labels is None else whole_numbers(name, labels)
        names = class_names(name, classes) or listed_classes(dataset) or numbers_as_names(numbers)
        pixels = PicturePixels(pictures, preparation, progress)
        origin = DataSpec(source, labelled=labelled) if source else IN_MEMORY
        return cls(name, pixels, numbers, names, mirror, (), origin, preparation.geometry)

    @classmethod
    def from_hf(
        cls,
        dataset: Any,
        split: str = "test",
        size: int | None = None,
        *,
        image: str = "",
        label: str = "",
        name: str = "",
        labelled: bool = True,
        mirror: bool = True,
        progress: Progress | None = None,
        preparation: Preparation | None = None,
    ) -> ImageSet:
        """Make a set of a Hugging Face dataset.

        Parameters
        ----------
        dataset
            The dataset itself, a folder of one, or its name on the hub.
        split
            Which part to load.
        size
            Edge of the square images, 32 by default.
        image, label
            Names of columns; by default they are found by their types, Image and ClassLabel.
        name
            Name of the set; by default that of the dataset.
        labelled, mirror, progress, preparation
            As in `from_folder`.

        Returns
        -------
        ImageSet
            The images, decoded as they are used.

        Examples
        --------
        >>> import datasets, macs
        >>> from PIL import Image
        >>> label = datasets.ClassLabel(names=["cat", "dog"])
        >>> features = datasets.Features({"image": datasets.Image(), "label": label})
        >>> columns = {"image": [Image.new("RGB", (60, 40))], "label": [1]}
        >>> macs.ImageSet.from_hf(datasets.Dataset.from_dict(columns, features=features), name="pets")
        <ImageSet pets: 1 images of 32 x 32 pixels, 2 classes>
        """
        origin, preparation = IN_MEMORY, preparation_from(size, preparation)
        if isinstance(dataset, str | Path):
            source = str(dataset) if str(dataset).startswith(PREFIX) else f"{PREFIX}{dataset}"
            name = name or source
            dataset, column = open_hf(source, split)
            label = label or column
            if not image and label == column:
                origin = DataSpec(printable_name(source), split, labelled=labelled)
        name = name or type(dataset).__name__
        dataset = split_of(dataset, split, name)
        pictures = HFPictures(dataset, image_column(dataset, image, name), name)
        column = label_column(dataset, label, name) if labelled else ""
        labels, names = read_labels(dataset, column, name) if column else (None, ())
        numbers = None if labels is None else whole_numbers(name, labels)
        pixels = PicturePixels(pictures, preparation, progress)
        classes = tuple(names) or numbers_as_names(numbers)
        return cls(name, pixels, numbers, classes, mirror, (), origin, preparation.geometry)

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def size(self) -> int:
        """Width and height of every image."""
        return self.pixels.shape[1]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape in which a network gets one of them."""
        return (3, self.size, self.size)

    @property
    def spec(self) -> DataSpec:
        """Where the images come from, their number and their fingerprint."""
        whole = self.origin.whole if self.origin.parts else len(self)
        return replace(self.origin, mirror=self.mirror, images=len(self), whole=whole, fingerprint=fingerprint(self))

    @property
    def whole_name(self) -> str:
        """The name of the whole set that these images were drawn from; `load` accepts it if the set came from there."""
        return self.name.removesuffix(self.origin.note(len(self)))

    def name_of(self, i: int) -> str:
        """The name of image i in a message or a table: its file, or its position in the set."""
        return self.files[i] if self.files else f"{self.name}[{range(len(self))[i]}]"

    def subset(self, indices: ArrayLike) -> ImageSet:
        """The images at these positions, in their order, or under a mask; no pixels are copied."""
        try:
            positions = np.arange(len(self))[np.asarray(indices)]
        except IndexError as error:
            raise MacsError(f"Cannot take these images out of the {len(self)} of {self.name}: {error}.") from None
        if np.array_equal(positions, np.arange(len(self))):
            return self
        return self._drawn(positions, Part("chosen", len(positions), positions=short_hash(positions.tobytes())))

    def split(self, first: float | int, seed: int = 0) -> tuple[ImageSet, ImageSet]:
        """Two sets drawn at random without overlap; `first` is the number of images in the first one, or its share."""
        if not isinstance(first, Real) or not math.isfinite(first) or not isinstance(seed, int) or seed < 0:
            raise MacsError(
                f"A set is split by a number or a share of its images and a seed, not by {first!r} and {seed!r}."
            )
        count = round(float(first) * len(self)) if isinstance(first, float) else int(first)
        if not 0 < count < len(self):
            raise MacsError(f"Cannot split {first} off the {len(self)} images of {self.name}: one part would be empty.")
        order = np.random.default_rng(seed).permutation(len(self))
        head = self._drawn(np.sort(order[:count]), Part("first", count, seed))
        return head, self._drawn(np.sort(order[count:]), Part("rest", count, seed))

    def _drawn(self, positions: NDArray[np.int64], part: Part) -> ImageSet:
        origin = self.origin.drawn(part, len(self))
        return replace(
            self,
            name=self.whole_name + origin.note(len(positions)),
            pixels=Subset(self.pixels, positions),
            labels=None if self.labels is None else self.labels[positions],
            files=tuple(self.files[i] for i in positions) if self.files else (),
            origin=origin,
        )

    def resized(self, to: int | Preparation) -> ImageSet:
        """The same images at another size, or as a network with this preparation expects them.

        Pictures are prepared again from their source. Images that came as pixels and have the size already stay as they
        are: they count as prepared.
        """
        preparation = to if isinstance(to, Preparation) else Preparation(to)
        same_size = preparation.size == self.size
        stays = same_size and (self.preparation is None or not isinstance(to, Preparation))
        return self if stays else self.prepared(preparation)

    def prepared(self, preparation: Preparation) -> ImageSet:
        """The same images in another preparation, from their original pictures; the set itself if it already has it."""
        wanted = preparation.geometry
        if self.preparation == wanted:
            return self
        return replace(self, pixels=prepared(self.pixels, wanted), preparation=wanted)


def require_images(images: object, what: str) -> ImageSet:
    """Return the argument; if it is not an image set, raise an error that says how to make one."""
    if isinstance(images, ImageSet):
        return images
    if isinstance(images, str | Path):
        got, make = f"the path {str(images)!r}", "macs.data.load(path)"
    elif hasattr(images, "shape") or isinstance(images, list | tuple):
        got, make = f"a {type(images).__name__}", "macs.data.ImageSet.from_array(pixels, labels)"
    elif images is None:
        got, make = "None", "macs.data.load(name or path)"
    elif hasattr(images, "dataset"):
        got, make = f"a {type(images).__name__}", "macs.data.ImageSet.from_dataset(loader.dataset)"
    elif hasattr(images, "__getitem__") and hasattr(images, "__len__"):
        got, make = f"a {type(images).__name__}", "macs.data.ImageSet.from_dataset(dataset)"
    else:
        got = f"a {type(images).__name__}"
        make = "macs.data.ImageSet.from_array(pixels, labels), from uint8 pixels N x size x size x 3"
    raise MacsError(f"The {what} must be an ImageSet, not {got}; make one with {make}.")


def as_array(value: ArrayLike, what: str) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # images of several sizes, or a tensor on a GPU
        raise MacsError(f"{what} cannot become one array: {first_line(error)}.") from None


def whole_numbers(name: str, labels: ArrayLike) -> NDArray[np.int64]:
    """Labels as a row of int64, refused if that would change them."""
    numbers = as_array(labels, f"The labels of {name}")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise MacsError(f"The labels of {name} are {numbers.dtype} of shape {numbers.shape}; give N whole numbers.")
    if numbers.max(initial=0) >= MAX_CLASSES:
        raise MacsError(f"{name} has the label {numbers.max()}, which no class can have; count labels from 0.")
    return numbers.astype(np.int64, copy=False)


def numbers_as_names(labels: NDArray[np.int64] | None) -> tuple[str, ...]:
    """Class names for labels that have none: 0, 1, 2, ..."""
    return () if labels is None else tuple(map(str, range(labels.max(initial=-1) + 1)))


def class_names(name: str, classes: Sequence[str]) -> tuple[str, ...]:
    """Class names as a tuple, refused unless they are distinct strings."""
    if isinstance(classes, str) or not isinstance(classes, Iterable) or not all(isinstance(c, str) for c in classes):
        raise MacsError(f"The class names of {name} must be a list of strings, not {classes!r:.100}.")
    names = tuple(classes)
    if repeated := [repeat for repeat, count in Counter(names).items() if count > 1]:
        raise MacsError(f"{name} has two classes called {repeated[0]!r}; give each class a name of its own.")
    return names
