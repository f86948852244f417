"""CLIP as a classifier without training: "clip/openai/clip-vit-base-patch32" on the hub, "clip/./mine" in a folder.

Its classes are words. With v the image's vector and t_k that of class k, both of unit norm, the logits are

    z_k = cos(v, t_k),        t_k = the mean over prompts such as "a photo of a cat." of their unit vectors, normalised.

The vectors t_k are the weights of the last layer, so a detector's file and its ONNX export hold them, and nothing is
needed of the text model once the network is built. A trained last layer in place of them is a linear probe.

Radford et al.: Learning Transferable Visual Models From Natural Language Supervision, ICML 2021.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from macs.core.errors import MacsError
from macs.data.preparation import Preparation
from macs.nets import net
from macs.nets._building import PRETRAINED, LibraryNet, State, build, building, downloading, library, library_of
from macs.nets._weights import remember_origin
from macs.nets.from_transformers import UNUSED, preparation_in, quiet

PROMPTS = ("a photo of a {}.",)
TEXTS = 256  # that pass through the text model at a time


class Towers(nn.Module):
    """The vision model, and the last layer with one vector per class."""

    def __init__(self, vision: nn.Module, dimensions: int, classes: int) -> None:
        super().__init__()
        self.vision = vision
        self.head = nn.Linear(dimensions, classes, bias=False)


@net("clip")
class ClipNet(LibraryNet):
    examples: ClassVar = ("clip/openai/clip-vit-base-patch32",)

    def __init__(
        self, model: str, *, classes: int, size: int | None = None, config: Mapping[str, Any] | None = None
    ) -> None:
        transformers = library("transformers", "hf")
        preparation = self.usual_preparation(model).at_size(size) if config is None else Preparation(size or 1)
        if config is None:
            with downloading(f"clip/{model}", "configuration"):
                built_from = transformers.CLIPConfig.from_pretrained(model).vision_config
        with building(f"clip/{model}"):
            if config is not None:
                built_from = transformers.CLIPVisionConfig(**{k: v for k, v in config.items() if k != "model_type"})
            if size is not None and size != built_from.image_size:
                raise MacsError(f"clip/{model} takes images of {built_from.image_size} pixels, not of {size}.")
            vision = transformers.CLIPVisionModelWithProjection(built_from)
            towers = Towers(vision, built_from.projection_dim, classes)
        super().__init__(f"clip/{model}", classes, towers, towers.head, preparation)
        self.config = {key: value for key, value in built_from.to_diff_dict().items() if key not in UNUSED}

    def features(self, pixels: Tensor) -> Tensor:
        vision: Any = self.wrapped.vision
        return normalize(vision(pixel_values=self.normalise(pixels)).image_embeds)

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(pixels))
        return logits

    @classmethod
    def usual_preparation(cls, model: str) -> Preparation:
        return preparation_in("clip", model)

    @classmethod
    def pretrained(cls, model: str, size: int | None) -> State:
        with downloading(f"clip/{model}", "weights"), quiet() as transformers:
            vision = transformers.CLIPVisionModelWithProjection.from_pretrained(model)
        return {f"vision.{name}": tensor for name, tensor in vision.state_dict().items()}

    def vectors_of(self, texts: Sequence[str]) -> Iterator[Tensor]:
        """Yield unit vectors of texts by CLIP's text model, which is loaded for this, some texts at a time."""
        model = self.name.partition("/")[2]
        with downloading(self.name, "text model"), quiet() as transformers:
            tokenizer = transformers.AutoTokenizer.from_pretrained(model)
            towards = transformers.CLIPTextModelWithProjection.from_pretrained(model).eval()
        longest = towards.config.max_position_embeddings
        for start in range(0, len(texts), TEXTS):
            some = [*texts[start : start + TEXTS]]
            tokens = tokenizer(some, padding=True, truncation=True, max_length=longest, return_tensors="pt")
            with torch.inference_mode():
                vectors: Tensor = towards(**tokens).text_embeds
            yield normalize(vectors.float())


def zero_shot(name: str, classes: Sequence[str], prompts: Sequence[str] = PROMPTS) -> nn.Module:
    """Make a classifier of CLIP for classes that are words, without training.

    Parameters
    ----------
    name
        "clip/" and the name of a CLIP model on the Hugging Face hub, or of a folder with one: "clip/./mine".
    classes
        Words or phrases that describe the classes.
    prompts
        Texts with {} in place of a class; the vectors of several are averaged.

    Returns
    -------
    torch.nn.Module
        A network whose logits are cosines; `mcm` is its score.

    Examples
    --------
    Where the hub can be reached, this is a detector of photographs that show neither cats nor dogs::

        net = macs.nets.zero_shot("clip/openai/clip-vit-base-patch32", ["cat", "dog"])
        detector = macs.Detector(net, "mcm", classes=("cat", "dog")).calibrate(photographs_of_cats_and_dogs)
    """
    adapter, model = library_of(name) or (None, "")
    if adapter is not ClipNet:
        raise MacsError(f"{name} is no CLIP model; write it like {ClipNet.examples[0]}.")
    if isinstance(classes, str) or len(classes) < 2 or not all(each.strip() for each in classes):
        raise MacsError("A zero-shot classifier needs the words of at least two classes; give a list such as cat, dog.")
    if wrong := [prompt for prompt in prompts if prompt.count("{}") != 1] or (not prompts and ["none"]):
        raise MacsError(f"A prompt has {{}} once, in place of the class; this has not: {wrong[0]}.")
    made = cast(ClipNet, build(name, len(classes)))
    vectors = torch.cat([*made.vectors_of([prompt.format(each) for each in classes for prompt in prompts])])
    state = made.pretrained(model, None)
    state["head.weight"] = normalize(vectors.reshape(len(classes), len(prompts), -1).mean(dim=1))
    made.wrapped.load_state_dict(state)
    remember_origin(made, PRETRAINED)
    return made.eval()
