# SPDX-License-Identifier: Apache-2.0
"""Networks of Keras as TensorFlow's converter makes .tflite files of them, for `files.py`; weights are random.

    python -m venv tf && tf/bin/pip install tensorflow-cpu==2.19.1
    tf/bin/python benchmarks/keras_files.py keras-tensorflow-2.19.1
    python benchmarks/files.py keras-tensorflow-2.19.1/*.tflite

Each network in float32, with weights of 8 bits alone ("dynamic range", what the converter makes when nothing but
`Optimize.DEFAULT` is asked for) and, where the converter can, in 8 bits with the statistics of random inputs.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from networks import Array

APPLICATIONS = (
    *("MobileNet", "MobileNetV3Small", "MobileNetV3Large", "EfficientNetB0", "EfficientNetV2B0", "NASNetMobile"),
    *("DenseNet121", "ResNet50V2", "ConvNeXtTiny"),
)
SAMPLES = 8
"""Random inputs that 8-bit scales are taken from."""
LARGEST_TOKEN = 400
layers = keras.layers


def transformer(tokens: int = 64, depth: int = 128, heads: int = 4) -> keras.Model:
    """Return two blocks of an encoder over embedded words."""
    words = keras.Input((tokens,), dtype="int32")
    x = layers.Embedding(1000, depth)(words) + layers.Embedding(tokens, depth)(tf.range(tokens))
    for _ in range(2):
        x = _block(x, depth, heads)
    return keras.Model(words, layers.Dense(10, activation="softmax")(layers.LayerNormalization()(x)[:, 0]))


def vision_transformer(depth: int = 128) -> keras.Model:
    """Return two blocks over the patches of a picture."""
    picture = keras.Input((96, 96, 3))
    x = layers.Reshape((36, depth))(layers.Conv2D(depth, 16, 16)(picture))
    for _ in range(2):
        x = _block(x, depth, 4)
    return keras.Model(picture, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def _block(x: keras.KerasTensor, depth: int, heads: int) -> keras.KerasTensor:
    y = layers.LayerNormalization()(x)
    x = x + layers.MultiHeadAttention(heads, depth // heads)(y, y)
    y = layers.Dense(2 * depth, activation="gelu")(layers.LayerNormalization()(x))
    return x + layers.Dense(depth)(y)


def u_net() -> keras.Model:
    """Return a segmentation of pictures by transposed convolutions."""
    picture = x = keras.Input((96, 96, 3))
    skips = []
    for depth in (16, 32, 64):
        x = layers.BatchNormalization()(layers.Conv2D(depth, 3, padding="same")(x))
        x = layers.LeakyReLU(negative_slope=0.1)(x)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(128, 3, padding="same", activation="swish")(x)
    for depth, skip in zip((64, 32, 16), reversed(skips), strict=True):
        x = layers.Concatenate()([layers.Conv2DTranspose(depth, 3, 2, padding="same")(x), skip])
        x = layers.Conv2D(depth, 3, padding="same", activation="relu")(x)
    return keras.Model(picture, layers.Conv2D(2, 1, activation="softmax")(x))


def upsampling() -> keras.Model:
    """Return resizing by repetition, and normalisation of groups: tensors of five dimensions."""
    picture = keras.Input((64, 64, 3))
    x = layers.Conv2D(16, 3, 2, padding="same", activation="elu")(picture)
    x = layers.Conv2D(8, 3, padding="same")(layers.UpSampling2D(interpolation="bilinear")(x))
    x = layers.GroupNormalization(4)(layers.UpSampling2D()(x))
    return keras.Model(picture, layers.Conv2D(1, 5, padding="same", activation="tanh")(x))


def audio() -> keras.Model:
    """Return convolutions over a row of samples."""
    samples = x = keras.Input((1024, 1))
    for depth in (16, 32, 64):
        x = layers.BatchNormalization()(layers.Conv1D(depth, 5, 2, padding="same", activation="relu")(x))
    x = layers.SeparableConv1D(32, 3)(layers.Conv1D(64, 3, dilation_rate=4, padding="causal")(x))
    return keras.Model(samples, layers.Dense(5)(layers.GlobalMaxPooling1D()(x)))


def video() -> keras.Model:
    """Return convolutions over pictures in time."""
    pictures = keras.Input((8, 32, 32, 3))
    x = layers.Conv3D(16, 3, strides=2)(layers.Conv3D(8, 3, padding="same", activation="relu")(pictures))
    return keras.Model(pictures, layers.Dense(4)(layers.Flatten()(layers.BatchNormalization()(x))))


def recurrent(layer: Callable[[], keras.Layer], steps: int = 20) -> Callable[[], keras.Model]:
    """Return what makes a network of one recurrent layer."""

    def make() -> keras.Model:
        sequence = keras.Input((steps, 16))
        return keras.Model(sequence, layers.Dense(4)(layer()(sequence)))

    return make


def application(name: str) -> Callable[[], keras.Model]:
    """Return what makes a network of keras.applications."""
    return lambda: getattr(keras.applications, name)(weights=None, input_shape=(224, 224, 3))


def words_lstm() -> keras.Model:
    """Return a classifier of embedded words."""
    words = keras.Input((32,), dtype="int32")
    x = layers.LSTM(32)(layers.Embedding(500, 16)(words))
    return keras.Model(words, layers.Dense(3, activation="softmax")(x))


NETWORKS: Mapping[str, Callable[[], keras.Model]] = {
    "transformer": transformer,
    "vision_transformer": vision_transformer,
    "u_net": u_net,
    "upsampling": upsampling,
    "audio": audio,
    "video": video,
    "words_lstm": words_lstm,
    "lstm": recurrent(lambda: layers.LSTM(32, return_sequences=True)),
    "bidirectional_lstm": recurrent(lambda: layers.Bidirectional(layers.LSTM(32, return_sequences=True))),
    "gru": recurrent(lambda: layers.GRU(32, return_sequences=True)),
    "gru_70_steps": recurrent(lambda: layers.GRU(32, return_sequences=True), 70),
    "simple_rnn": recurrent(lambda: layers.SimpleRNN(32, return_sequences=True)),
    **{name: application(name) for name in APPLICATIONS},
}
KINDS = ("float32", "dynamic", "int8")
NO_8_BIT = ("lstm", "bidirectional_lstm", "gru", "gru_70_steps", "simple_rnn", "words_lstm")
"""The converter's calibration ends the process in their loops."""


def main() -> None:
    """Write the files into a folder; those that are there stay."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in NETWORKS.items():
        kinds = [kind for kind in KINDS if kind != "int8" or name not in NO_8_BIT]
        missing = [kind for kind in kinds if not (folder / f"{name}_{kind}.tflite").exists()]
        model = _with_numbers(make()) if missing else None
        for kind in missing:
            (folder / f"{name}_{kind}.tflite").write_bytes(converted(model, kind))
            print(f"{name}_{kind}", flush=True)


def _with_numbers(model: keras.Model) -> keras.Model:
    """Give normalisations something to do: new ones have mean 0 and variance 1."""
    random = np.random.default_rng(0)
    for weight in model.weights:
        if any(word in weight.path for word in ("moving_mean", "beta", "bias")):
            weight.assign(random.normal(0, 0.05, weight.shape))
        elif "moving_variance" in weight.path:
            weight.assign(random.uniform(0.5, 1.5, weight.shape))
    return model


def converted(model: keras.Model, kind: str) -> bytes:
    """Return the file of a network for batches of one."""
    specs = [tf.TensorSpec([1, *one.shape[1:]], one.dtype) for one in model.inputs]
    function = tf.function(lambda *x: model(list(x) if len(x) > 1 else x[0], training=False), input_signature=specs)
    frozen = convert_variables_to_constants_v2(function.get_concrete_function())
    converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen])
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "int8":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.representative_dataset = lambda: _samples(specs)
    file: bytes = converter.convert()
    return file


def _samples(specs: list[tf.TensorSpec]) -> Iterator[list[Array]]:
    random = np.random.default_rng(0)
    for _ in range(SAMPLES):
        yield [
            random.integers(0, LARGEST_TOKEN, spec.shape).astype(np.int32)
            if spec.dtype == tf.int32
            else random.uniform(0, 1, spec.shape).astype(np.float32)
            for spec in specs
        ]


if __name__ == "__main__":
    main()
