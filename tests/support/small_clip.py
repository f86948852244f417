"""A small CLIP with random weights, in a folder as the hub has it; its tokens are letters."""

from pathlib import Path

import torch


def write_clip(folder: Path, size: int) -> None:
    import transformers

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    letters = [chr(i) for i in range(33, 127)]
    vocabulary = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    texts = {"vocab_size": len(vocabulary), "max_position_embeddings": 40, "bos_token_id": 188, "eos_token_id": 189}
    images = {"image_size": size, "patch_size": 8}
    projected = {"projection_dim": 24}
    torch.manual_seed(0)
    both = {"text_config": {**shape, **texts, **projected}, "vision_config": {**shape, **images, **projected}}
    config = transformers.CLIPConfig(**both, **projected)
    transformers.CLIPModel(config).save_pretrained(folder)
    numbers = {token: number for number, token in enumerate(vocabulary)}
    transformers.CLIPTokenizer(vocab=numbers, merges=[]).save_pretrained(folder)
    square = {"height": size, "width": size}
    transformers.CLIPImageProcessor(size={"shortest_edge": 36}, crop_size=square).save_pretrained(folder)
