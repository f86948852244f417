"""Image classifiers of transformers: "hf/google/vit-base-patch16-224" on the Hugging Face hub, "hf/./mine" in a folder.

A name alone cannot build them: their configuration is on the hub or in the folder. So our files hold it as well, and
can be loaded without either.

Wolf et al.: Transformers: State-of-the-Art Natural Language Processing, EMNLP 2020.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import Tensor

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.data.preparation import Preparation
from macs.nets import net
from macs.nets._building import (
    LibraryNet,
    State,
    building,
    downloading,
    last_defined_linear,
    library,
    usable_preparation,
)

RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers
WARPED = 384  # pixels, from which transformers' ConvNext processor resizes without cropping
UNUSED = ("id2label", "label2id", "auto_map", "transformers_version", "_name_or_path")  # keys that build nothing


@net("hf")
class TransformersNet(LibraryNet):
    examples: ClassVar = ("hf/google/vit-base-patch16-224",)

    def __init__(
        self, model: str, *, classes: int, size: int | None = None, config: Mapping[str, Any] | None = None
    ) -> None:
        transformers = _transformers()
        preparation = self.usual_preparation(model).at_size(size) if config is None else Preparation(size or 1)
        if config is None:
            with downloading(f"hf/{model}", "configuration"):
                built_from = transformers.AutoConfig.from_pretrained(model, trust_remote_code=False)
        with building(f"hf/{model}"):
            if config is not None:
                built_from = transformers.AutoConfig.for_model(**config)
            built_from.num_labels = classes
            built_from.architectures = built_from.architectures or []  # transformers treats None as an error
            if size is not None and hasattr(built_from, "image_size"):
                built_from.image_size = size
            wrapped = transformers.AutoModelForImageClassification.from_config(built_from, trust_remote_code=False)
        super().__init__(f"hf/{model}", classes, wrapped, last_defined_linear(wrapped), preparation)
        self.config = {key: value for key, value in built_from.to_diff_dict().items() if key not in UNUSED}

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.wrapped(pixel_values=self.normalise(pixels)).logits
        return logits

    @classmethod
    def usual_preparation(cls, model: str) -> Preparation:
        return preparation_in("hf", model)

    @classmethod
    def pretrained(cls, model: str, size: int | None) -> State:
        with downloading(f"hf/{model}", "weights"), quiet() as transformers:
            state: State = transformers.AutoModelForImageClassification.from_pretrained(
                model, trust_remote_code=False
            ).state_dict()
        return state

    def translated(self, state: State) -> State:
        """The names in files are not always those in memory; transformers translates them as it loads a state dict."""
        ours: Any = self.wrapped
        config, head = copy.deepcopy(ours.config), f"{self.head_name}.weight"
        if head in state:
            config.num_labels = len(state[head])
        with building(self.name), quiet():
            loaded, info = type(ours).from_pretrained(
                None, config=config, state_dict=dict(state), ignore_mismatched_sizes=True, output_loading_info=True
            )
        result = {key: value for key, value in loaded.state_dict().items() if key not in info["missing_keys"]}
        others = (*info["unexpected_keys"], *(key for key, *_ in info["mismatched_keys"]))
        return result | {key: state[key] for key in others if key in state}


def preparation_in(library_name: str, model: str) -> Preparation:
    """Return the preparation of a model's own image processor, on the hub or in a folder."""
    name = f"{library_name}/{model}"
    with downloading(name, "preparation"):
        values = _transformers().AutoImageProcessor.from_pretrained(model, trust_remote_code=False).to_dict()
    return _preparation(name, values)


def _transformers() -> Any:
    return library("transformers", "hf")


@contextmanager
def quiet() -> Iterator[Any]:
    """transformers without its progress bars and reports; `load` says what matters in one sentence."""
    transformers = _transformers()
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _preparation(name: str, values: Mapping[str, Any]) -> Preparation:
    """The settings of an image processor as a Preparation."""
    size, crop = _edges(values.get("size")), _edges(values.get("crop_size"))
    if size is None or not values.get("do_resize", True):
        raise MacsError(f"{name} does not say to which size it resizes images; give it a preparation of your own.")
    height, width, keeps_shape = size
    resize = min(height, width)
    if values.get("do_center_crop") and crop is not None:
        height, width, _ = crop
    elif values.get("crop_pct") is not None and resize < WARPED:
        resize, keeps_shape = int(resize / values["crop_pct"]), True
    else:
        keeps_shape = False
    if not keeps_shape:
        warn(
            f"transformers resizes whole images to squares for {name}, but macs crops the centre; the two differ for "
            "images that are not square."
        )
    if values.get("do_rescale", True) and abs(values.get("rescale_factor", 1 / 255) * 255 - 1) > 1e-3:
        raise MacsError(f"{name} normalises pixels of another range than [0, 1], which macs cannot give it.")
    normalises = values.get("do_normalize", True)
    mean, std = (values["image_mean"], values["image_std"]) if normalises else ((0.0,) * 3, (1.0,) * 3)
    return usable_preparation(name, (height, width), resize, RESAMPLING[int(values["resample"])], mean, std)


def _edges(size: Any) -> tuple[int, int, bool] | None:
    """Height and width, and whether an image keeps its shape when its shorter edge is resized to them."""
    if isinstance(size, int):
        return size, size, False
    if not isinstance(size, Mapping):
        return None
    if shortest := size.get("shortest_edge"):
        return shortest, shortest, True
    height, width = size.get("height"), size.get("width")
    return (height, width, False) if height and width else None
