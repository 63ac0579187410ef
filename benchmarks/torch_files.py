# SPDX-License-Identifier: Apache-2.0
"""Networks of PyTorch (Hugging Face) as its exporter makes .tflite files of them, for `files.py`; weights are random.

    python -m venv pt && pt/bin/pip install litert-torch==0.10.0 torch==2.13.0 transformers==5.23.0
    pt/bin/python benchmarks/torch_files.py transformers-5.23.0
    python benchmarks/files.py transformers-5.23.0/*.tflite

Architectures and sizes are the library's defaults, with fewer blocks where a network is large. Pictures have their
channels first, as PyTorch has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import transformers as hf
from torch_export import FirstOutput, write_files

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch_export import Networks

PICTURE, WORDS, SOUND = (1, 3, 224, 224), (1, 64), (1, 80, 3000)
_SMALL = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048}

NETWORKS: Networks = {
    "resnet_50": (lambda: hf.ResNetForImageClassification(hf.ResNetConfig()), PICTURE),
    "mobilenet_v2": (lambda: hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config()), PICTURE),
    "convnext_tiny": (lambda: hf.ConvNextForImageClassification(hf.ConvNextConfig()), PICTURE),
    "mobilevit_s": (lambda: hf.MobileViTForImageClassification(hf.MobileViTConfig()), (1, 3, 256, 256)),
    "segformer_b0": (lambda: hf.SegformerForSemanticSegmentation(hf.SegformerConfig()), (1, 3, 256, 256)),
    "vit_6_blocks": (lambda: hf.ViTForImageClassification(hf.ViTConfig(patch_size=32, num_hidden_layers=6)), PICTURE),
    "bert_small": (lambda: hf.BertModel(hf.BertConfig(**_SMALL)), WORDS),
    "distilbert_3_blocks": (lambda: hf.DistilBertModel(hf.DistilBertConfig(n_layers=3)), WORDS),
    "gpt2_3_blocks": (lambda: hf.GPT2Model(hf.GPT2Config(n_layer=3)), WORDS),
    "whisper_encoder_1_block": (lambda: hf.WhisperModel(hf.WhisperConfig(encoder_layers=1)).encoder, SOUND),
}


def _first(make: Callable[[], torch.nn.Module]) -> Callable[[], torch.nn.Module]:
    return lambda: FirstOutput(make())


if __name__ == "__main__":
    write_files(str(__doc__), {name: (_first(make), shape) for name, (make, shape) in NETWORKS.items()}, [WORDS])
