"""Images in whatever form a caller holds them, as an ImageSet. This is the one place that converts them; torch is not
imported, so that an exported detector takes the same forms.

    ImageSet                    as it is
    array or tensor             uint8, N x H x W x 3 or N x 3 x H x W; or float in [0, 1], N x 3 x H x W; or one image
    PIL image                   turned upright by its EXIF tag, as a file is
    list or tuple               of these, or of pairs of an image and its label
    map-style dataset           as in torch and torchvision, of PIL images or uint8 pixels
    torch DataLoader            of batches of these; of pairs of images and labels; or of dicts of both
    path, list of paths         of files, or of one folder, where the caller allows it

Floats are rounded to the 256 levels of a file, from which they usually come: `ToTensor` loses nothing by it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import kind_of, user_path
from macs.core.registry import users_code
from macs.data.dataset_adapters import listed_classes, plain_number
from macs.data.imageset import ImageSet, as_array, numbers_as_names, require_images, whole_numbers
from macs.data.pixels import Joined, Resized
from macs.data.preparation import Preparation

IMAGE_KEYS, LABEL_KEYS = ("image", "pixel_values", "images"), ("label", "labels")  # of dicts, as in Hugging Face
IN_ORDER = ("SequentialSampler", "_InfiniteConstantSampler")  # the samplers of loaders that do not shuffle
OVERSHOOT = 1e-3  # beyond [0, 1], as interpolation leaves it


def to_images(
    given: Any, what: str, preparation: Preparation | None = None, *, labelled: bool = True, paths: bool = False
) -> ImageSet:
    """Return images in any of the forms above as a set; `what` names them in messages.

    Pictures are prepared as `preparation` says. Arrays and tensors keep their size if they are square.
    """
    if isinstance(given, ImageSet):
        return given
    if is_loader(given):
        return _joined(list(loaded_sets(given, what, preparation, labelled=labelled)), given, what)
    if paths and (files := _of_paths(given, preparation)):
        return files
    images, labels = parts_of(given) if isinstance(given, list | tuple) else (given, None)
    if _is_dataset(images):
        return ImageSet.from_dataset(images, labelled=labelled, preparation=_required(preparation, what))
    made = _of_items(images if isinstance(images, list | tuple) else [images], what, preparation)
    return _labelled(made, labels, what) if labelled else made


def to_sets(
    given: Any, what: str, preparation: Preparation | None = None, *, labelled: bool = False
) -> dict[str, ImageSet]:
    """`to_images` for several sets by name."""
    if not isinstance(given, Mapping):
        raise MacsError(f"The {what} must be a dict of ImageSets by name, not a {type(given).__name__}.")
    return {
        name: to_images(images, f"{what} called {name!r}", preparation, labelled=labelled)
        for name, images in given.items()
    }


def is_loader(given: object) -> bool:
    """Return whether this is a DataLoader of torch, or like one."""
    return hasattr(given, "sampler") and hasattr(given, "dataset") and hasattr(given, "__iter__")


def require_order(loader: Any) -> None:
    """Refuse a loader that shuffles: nobody could tell which verdict is about which image."""
    if type(loader.sampler).__name__ not in IN_ORDER:
        raise MacsError("A DataLoader that shuffles or samples gives images in no fixed order; give its dataset.")


def loaded_sets(
    loader: Any, what: str, preparation: Preparation | None = None, *, labelled: bool = True
) -> Iterator[ImageSet]:
    """Yield the batches of a loader as sets; a single set if torch cannot make batches of its pictures."""
    with users_code(f"The DataLoader of the {what} fails"):
        pictures = _holds_pictures(loader)
    if pictures:
        whole = ImageSet.from_dataset(loader.dataset, labelled=labelled, preparation=_required(preparation, what))
        yield whole.subset(list(loader.sampler))
        return
    for batch in _batches(loader, what):
        images, labels = parts_of(batch)
        made = to_images(images, what, preparation, labelled=False)
        yield _labelled(made, labels, what) if labelled else made


def _batches(loader: Any, what: str) -> Iterator[Any]:
    """Yield the batches of a loader; whatever its own code raises becomes a MacsError."""
    failed, end = f"The DataLoader of the {what} fails", object()
    with users_code(failed):
        batches = iter(loader)
    while True:
        with users_code(failed):
            batch = next(batches, end)
        if batch is end:
            return
        yield batch


def parts_of(batch: Any) -> tuple[Any, Any]:
    """Return the images and the labels of a batch; the labels are None if there are none."""
    if isinstance(batch, Mapping):
        image, label = (next((key for key in keys if key in batch), None) for keys in (IMAGE_KEYS, LABEL_KEYS))
        if image is None:
            keys = ", ".join(map(str, batch)) or "none"
            raise MacsError(f"A batch is a dict with the keys {keys}; let one of them be image or pixel_values.")
        return batch[image], None if label is None else batch[label]
    if isinstance(batch, list | tuple) and batch:
        if _are_several(batch[0]) and not any(map(_are_several, batch[1:2])):
            return batch[0], batch[1] if len(batch) > 1 else None
        if all(isinstance(item, Mapping) or (isinstance(item, list | tuple) and item) for item in batch):
            pairs = [parts_of(item) if isinstance(item, Mapping) else (item[0], [*item, None][1]) for item in batch]
            images, labels = zip(*pairs, strict=True)
            return list(images), None if any(label is None for label in labels) else [*map(plain_number, labels)]
    return batch, None


def pixels_from(images: Any, what: str) -> NDArray[np.uint8]:
    """Return an array or a tensor of one image or more as uint8, N x H x W x 3."""
    tensor = hasattr(images, "detach")
    if tensor:
        images = images.detach().cpu()
        images = images.float() if images.is_floating_point() else images  # numpy has no bfloat16
    array = as_array(images, f"The {what}")
    stack = array[None] if array.ndim == 3 else array
    floating = array.dtype.kind == "f"
    first, last = (stack.ndim == 4 and stack.shape[axis] == 3 for axis in (1, 3))
    known_layout = first if floating else array.dtype == np.uint8 and (first or last)
    if not known_layout or 0 in stack.shape:
        raise MacsError(
            f"The {what} must be uint8 pixels 0..255, N x H x W x 3 or N x 3 x H x W, or float pixels in [0, 1], "
            f"N x 3 x H x W, not {array.dtype} of shape {array.shape}."
        )
    if floating:
        stack = _from_floats(stack, what)
    pixels: NDArray[np.uint8] = stack
    if first and (tensor or floating or not last):
        pixels = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))
    return pixels


def _from_floats(stack: NDArray[Any], what: str) -> NDArray[np.uint8]:
    low, high = float(stack.min()), float(stack.max())
    if not (low >= -OVERSHOOT and high <= 1 + OVERSHOOT):
        hint = "divide them by 255, or give uint8" if low >= 0 else "leave out Normalize, which the network does itself"
        raise MacsError(f"The {what} are float pixels from {low:.3g} to {high:.3g}, but must be in [0, 1]; {hint}.")
    levels: NDArray[np.uint8] = np.rint(np.clip(stack, 0, 1) * 255).astype(np.uint8)
    return levels


def _of_array(pixels: NDArray[np.uint8], what: str, preparation: Preparation | None) -> ImageSet:
    """Square images keep their size; others are prepared as pictures are."""
    square = pixels.shape[1] == pixels.shape[2]
    return ImageSet("images", pixels if square else Resized(pixels, _required(preparation, what)))


def _of_items(items: Sequence[Any], what: str, preparation: Preparation | None) -> ImageSet:
    """Arrays of one size as one array; anything else as pictures."""
    if not items or not all(_is_array(item) or _is_picture(item) for item in items):
        require_images(items[0] if len(items) == 1 else items, what)
    if all(map(_is_array, items)):
        pixels = [pixels_from(item, what) for item in items]
        if len({each.shape[1:] for each in pixels}) == 1:
            return _of_array(pixels[0] if len(pixels) == 1 else np.concatenate(pixels), what, preparation)
    return _of_pictures(items, what, preparation)


def _of_pictures(items: Sequence[Any], what: str, preparation: Preparation | None) -> ImageSet:
    from PIL import Image

    pictures = [
        picture
        for item in items
        for picture in ([item] if _is_picture(item) else map(Image.fromarray, pixels_from(item, what)))
    ]
    return ImageSet.from_dataset(pictures, name="images", labelled=False, preparation=_required(preparation, what))


def _of_paths(given: Any, preparation: Preparation | None) -> ImageSet | None:
    """Return the images of files, or of one folder; None for anything but paths."""
    several = [given] if isinstance(given, str | Path) else given
    if not isinstance(several, list | tuple) or not several:
        return None
    if not all(isinstance(each, str | Path) for each in several):
        return None
    if len(several) == 1 and kind_of(user_path(several[0])) == "a folder":
        return ImageSet.from_folder(several[0], labelled=False, preparation=preparation)
    return ImageSet.from_files(several, preparation=preparation)


def _joined(sets: list[ImageSet], loader: Any, what: str) -> ImageSet:
    """Return the batches of a loader as one set."""
    if not sets:
        raise MacsError(f"The DataLoader of the {what} gives no batch; check its dataset.")
    labels = [each.labels for each in sets if each.labels is not None]
    if labels and len(labels) < len(sets):
        raise MacsError(f"Some batches of the {what} have labels and others have none; label all.")
    numbers = np.concatenate(labels) if labels else None
    if len(sizes := sorted({each.size for each in sets})) > 1:
        raise MacsError(
            f"The batches of the {what} have images of {sizes[0]} and {sizes[-1]} pixels; let all have one size."
        )
    return replace(
        sets[0],
        name=type(loader.dataset).__name__,
        pixels=sets[0].pixels if len(sets) == 1 else Joined([each.pixels for each in sets]),
        labels=numbers,
        classes=sets[0].classes if len(sets) == 1 else listed_classes(loader.dataset) or numbers_as_names(numbers),
    )


def _labelled(images: ImageSet, labels: Any, what: str) -> ImageSet:
    """Return the set with these labels, if there are any."""
    if labels is None:
        return images
    numbers = whole_numbers(what, labels.detach().cpu() if hasattr(labels, "detach") else labels)
    return replace(images, labels=numbers, classes=numbers_as_names(numbers))


def _required(preparation: Preparation | None, what: str) -> Preparation:
    if preparation is None:
        raise MacsError(
            f"The {what} are pictures, but the network does not say how to prepare pictures; give it an attribute "
            "`preparation`, or make an ImageSet of their size with macs.data.ImageSet.from_dataset(..., size)."
        )
    return preparation


def _is_array(given: Any) -> bool:
    return hasattr(given, "shape") and hasattr(given, "dtype")


def _is_dataset(given: Any) -> bool:
    map_style = hasattr(given, "__getitem__") and hasattr(given, "__len__")
    return map_style and not _is_array(given) and not isinstance(given, str | list | tuple | dict)


def _is_picture(given: Any) -> bool:
    from PIL import Image

    return isinstance(given, Image.Image)


def _are_several(images: Any) -> bool:
    """Return whether these are several images: an array of four dimensions, or a list of images."""
    if isinstance(images, list | tuple):
        return bool(images) and all(_is_picture(each) or (_is_array(each) and len(each.shape) == 3) for each in images)
    return _is_array(images) and len(images.shape) == 4


def _holds_pictures(loader: Any) -> bool:
    """Return whether a loader would fail, because torch's own collate function makes no batches of PIL images."""
    own = getattr(loader.collate_fn, "__name__", "") == "default_collate"
    dataset = loader.dataset
    if not own or not hasattr(dataset, "__len__") or not len(dataset):
        return False
    item = dataset[0]
    return _is_picture(item[0] if isinstance(item, list | tuple) and item else item)
