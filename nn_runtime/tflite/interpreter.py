# SPDX-License-Identifier: Apache-2.0
"""A drop-in for LiteRT's `Interpreter`: the same methods, dictionaries and kinds of errors, on NNAPI devices.

Differences: `device=` selects where to run; delegates are refused; constants cannot be changed; inputs are not empty;
values between operators can be read only with
`experimental_preserve_all_tensors`; `tensor()` views stay valid over `invoke`, until tensors are allocated anew; sparse
constants are read as dense ones; `reset_all_variables` resets resource variables too, and subgraphs cannot share them;
what has no meaning here (threads, resolvers, delegate settings) is accepted and ignored.
"""

from __future__ import annotations

import enum
import math
import operator
import os
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

import numpy as np

from nn_runtime.checks import path_shown, shown
from nn_runtime.errors import BadData, BadState, NNError, OperationFailed
from nn_runtime.numeric import whole_numbers
from nn_runtime.tflite.converter import convert
from nn_runtime.tflite.decoder import TfliteError
from nn_runtime.tflite.reader import read
from nn_runtime.tflite.types import TensorType
from nn_runtime.tflite.variables import resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from nn_runtime.network import Network
    from nn_runtime.operand import Array, Dimensions
    from nn_runtime.session import Session
    from nn_runtime.tflite.types import TfliteLevel, TfliteModel, TfliteSignature, TfliteSparsity, TfliteTensor

_WITHOUT_DTYPE = {TensorType.RESOURCE: np.object_, TensorType.VARIANT: np.object_}


class TensorDetails(TypedDict):
    """What is known of a tensor, by LiteRT's keys."""

    name: str
    index: int
    shape: npt.NDArray[np.int32]
    shape_signature: npt.NDArray[np.int32]
    dtype: type[np.generic | object]
    quantization: tuple[float, int]
    quantization_parameters: dict[str, Any]
    sparsity_parameters: dict[str, Any]


class OpResolverType(enum.Enum):
    """LiteRT's choice of kernels; accepted and ignored."""

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


class Interpreter:
    """Runs a .tflite file, tensor by tensor. Errors are ValueError or RuntimeError as LiteRT's.

    `experimental_delegates` are refused. Ignored: `num_threads` (OpenCL uses all cores),
    `experimental_op_resolver_type`, and the settings of delegates.
    """

    def __init__(
        self,
        model_path: str | bytes | os.PathLike[str] | None = None,
        model_content: bytes | None = None,
        experimental_delegates: Sequence[object] | None = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: object = OpResolverType.AUTO,
        experimental_preserve_all_tensors: bool = False,
        experimental_disable_delegate_clustering: bool = False,
        experimental_default_delegate_latest_features: bool = False,
        experimental_compress_quantization_zero_points: bool = False,
        experimental_disable_delegate_node_fusion: bool = False,
        experimental_force_delegate_node_profiling: bool = False,
        *,
        device: str | None = None,
    ) -> None:
        """Read the file and convert its main subgraph; `device` is a selector as of `Network.compile`.

        Raises ValueError for a bad argument, file or operator; where the file leaves sizes of inputs open, which
        `resize_tensor_input` gives, `allocate_tensors` raises RuntimeError for operators.
        """
        if num_threads is not None and not isinstance(num_threads, int):
            raise BadData(f"num_threads must be an int, got {type(num_threads).__name__}")
        if num_threads is not None and num_threads < 1:
            raise BadData(f"num_threads must be >= 1, got {num_threads}")
        self.experimental_compress_quantization_zero_points = experimental_compress_quantization_zero_points
        if experimental_delegates:
            raise BadData("experimental_delegates: delegates are not supported, choose a device by device=")
        self._model = _read(model_path, model_content)
        self._device = device
        self._preserve_all = experimental_preserve_all_tensors
        self._runners: dict[int, _Runner] = {}
        self._runner(0)

    def allocate_tensors(self) -> None:
        """Prepare the network for the inputs' shapes and give its inputs and outputs memory."""
        self._runner(0).allocate()

    def get_input_details(self) -> list[TensorDetails]:
        """Return the details of every input: name, index, shape, dtype, quantisation ..."""
        runner = self._runner(0)
        return [runner.details(index) for index in runner.subgraph.inputs]

    def get_output_details(self) -> list[TensorDetails]:
        """Return the details of every output."""
        runner = self._runner(0)
        return [runner.details(index) for index in runner.subgraph.outputs]

    def get_tensor_details(self, subgraph_index: int = 0) -> list[TensorDetails]:
        """Return the details of every tensor of a subgraph."""
        if not 0 <= subgraph_index < self.num_subgraphs():
            raise BadData(f"subgraph_index must be below {self.num_subgraphs()}, got {subgraph_index}")
        tensors = self._model.subgraphs[subgraph_index].tensors
        if subgraph_index in self._runners:
            return [self._runners[subgraph_index].details(index) for index in range(len(tensors))]
        return [_details(tensor, index, tensor.shape) for index, tensor in enumerate(tensors)]

    def num_subgraphs(self) -> int:
        """Return the number of subgraphs in the file."""
        return len(self._model.subgraphs)

    def set_tensor(self, tensor_index: int, value: npt.ArrayLike) -> None:
        """Copy a value into an input or a variable tensor; dtype and shape must be the tensor's."""
        self._runner(0).set(operator.index(tensor_index), value)

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> Array:
        """Return a copy of an input, output, variable tensor or constant."""
        copy: Array = self._runner(subgraph_index).array(operator.index(tensor_index)).copy()
        return copy

    def tensor(self, tensor_index: int) -> Callable[[], Array]:
        """Return a function that gives a view of an input, output or constant."""
        place = operator.index(tensor_index)
        return lambda: self._runner(0).array(place)

    def resize_tensor_input(self, input_index: int, tensor_size: Sequence[int], strict: bool = False) -> None:
        """Give an input another shape, from the next `allocate_tensors` on.

        `strict`: only sizes for which the file has -1 may change, and not the rank.
        """
        sizes = tuple(whole_numbers("resize_tensor_input: the sizes", tensor_size))
        self._runner(0).resize(operator.index(input_index), sizes, strict)

    def invoke(self) -> None:
        """Run once; raises RuntimeError before `allocate_tensors`."""
        self._runner(0).invoke()

    def reset_all_variables(self) -> None:
        """Set the variable tensors (states of recurrent layers) to zero, resource variables to their first values."""
        self._runner(0).reset_variables()

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Return the names of inputs and outputs, sorted, by signature, in the order of the file."""
        return {
            signature.key: {"inputs": sorted(signature.inputs), "outputs": sorted(signature.outputs)}
            for signature in self._model.signatures
        }

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """Return a callable for a signature; no key is needed where the file has just one."""
        signatures = self._model.signatures
        if signature_key is None and len(signatures) == 1:
            signature_key = signatures[0].key
        found = next((signature for signature in signatures if signature.key == signature_key), None)
        if found is None:
            if not signatures:
                raise BadData("get_signature_runner: the file has no signatures: use set_tensor, invoke and get_tensor")
            known = ", ".join(repr(signature.key) for signature in signatures)
            raise BadData(f"signature_key must be one of the file's ({known}), got {signature_key!r}")
        return SignatureRunner(self._runner(found.subgraph_index), found)

    def close(self) -> None:
        """Free what is prepared."""
        for runner in self._runners.values():
            runner.close()

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _runner(self, subgraph_index: int) -> _Runner:
        if not 0 <= subgraph_index < self.num_subgraphs():
            raise BadData(f"subgraph_index must be below {self.num_subgraphs()}, got {subgraph_index}")
        if subgraph_index not in self._runners:
            self._check_own_variables(subgraph_index)
            self._runners[subgraph_index] = _Runner(self._model, subgraph_index, self._device, self._preserve_all)
        return self._runners[subgraph_index]

    def _check_own_variables(self, subgraph_index: int) -> None:
        """Refuse a subgraph that shares variables with another: each keeps its own between runs."""
        subgraphs = self._model.subgraphs
        for other in self._runners:
            shared = resources(subgraphs[subgraph_index]) & resources(subgraphs[other])
            if shared:
                raise BadData(
                    f"subgraph {subgraph_index}: shares variable {min(shared)} with subgraph {other}, "
                    "which is not supported"
                )


def load_delegate(library: str, options: Mapping[str, object] | None = None) -> NoReturn:
    """Raise ValueError, as LiteRT does for a delegate that cannot be loaded: programs go on without it then."""
    raise BadData(f"load_delegate {library!r}: delegates are not supported, choose a device by device= or NNRT_DEVICE")


class SignatureRunner:
    """Runs one signature with inputs by name; each call gives the inputs the shapes of its arguments.

    Inputs and outputs are in the order of their names, as LiteRT's.
    """

    def __init__(self, runner: _Runner, signature: TfliteSignature) -> None:
        """Use `Interpreter.get_signature_runner`."""
        self._runner = runner
        self._inputs = dict(sorted(signature.inputs.items()))
        self._outputs = dict(sorted(signature.outputs.items()))

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        """Run once; returns the outputs by name."""
        if len(inputs) != len(self._inputs):
            raise BadData(f"wanted {len(self._inputs)} inputs ({', '.join(self._inputs)}), got {len(inputs)}")
        for name, value in inputs.items():
            if name not in self._inputs:
                raise BadData(f"no input is called {name!r}, the inputs are {', '.join(self._inputs)}")
            self._runner.resize(self._inputs[name], value.shape, False)
        self._runner.allocate()
        for name, value in inputs.items():
            self._runner.set(self._inputs[name], value)
        self._runner.invoke()
        return {name: self._runner.array(index).copy() for name, index in self._outputs.items()}

    def get_input_details(self) -> dict[str, TensorDetails]:
        """Return the details of the inputs by name."""
        return self._details(self._inputs)

    def get_output_details(self) -> dict[str, TensorDetails]:
        """Return the details of the outputs by name."""
        return self._details(self._outputs)

    def _details(self, names: Mapping[str, int]) -> dict[str, TensorDetails]:
        return {name: self._runner.details(index) for name, index in names.items()}


class _Runner:
    """One subgraph: its network for the inputs' shapes, a session once allocated, and the arrays of its tensors."""

    def __init__(self, model: TfliteModel, subgraph_index: int, device: str | None, preserve_all: bool) -> None:
        self.subgraph = model.subgraphs[subgraph_index]
        self._model = model
        self._subgraph_index = subgraph_index
        self._device = device
        self._preserve_all = preserve_all
        self._shapes: dict[int, Dimensions] = {index: self._tensor(index).shape for index in self.subgraph.inputs}
        self._network = self._converted_if_known()
        self._session: Session | None = None
        self._arrays: dict[int, Array] = {}

    def allocate(self) -> None:
        """Convert for new shapes, compile, and give inputs and outputs fresh memory; nothing if that is done."""
        if self._session is not None:
            return
        if self._network is None:
            try:
                self._network = self._converted()
            except BadData as error:
                raise OperationFailed(f"allocate_tensors: {error}") from error
        session = self._network.compile(self._device)
        infos = (*self._network.inputs, *self._network.outputs)
        self._arrays = {info.index: np.zeros(info.shape, info.dtype) for info in infos}
        self._session = session  # last: it says that all is there

    def details(self, index: int) -> TensorDetails:
        """Return LiteRT's details of a tensor."""
        shape = self._tensor(index).shape
        if index in self._arrays:
            shape = self._arrays[index].shape
        return _details(self._tensor(index), index, self._shapes.get(index, shape))

    def set(self, index: int, value: npt.ArrayLike) -> None:
        """Copy a value into an input, an output or a variable."""
        tensor = self._tensor(index)
        if self._session is None:
            raise BadData("set_tensor: tensors are not allocated, call allocate_tensors() first")
        target = self._arrays.get(index)
        if target is None:
            target = self._variable(tensor, index)
        if target is None:
            raise BadData(f"set_tensor: tensor {index} {tensor.name!r} is neither an input, an output nor a variable")
        array = np.asarray(value)
        if array.dtype.newbyteorder("=") != target.dtype or array.shape != target.shape:
            wanted, given = f"{target.dtype} {list(target.shape)}", f"{array.dtype} {list(array.shape)}"
            raise BadData(f"set_tensor: tensor {index} {tensor.name!r}: wanted {wanted}, got {given}")
        np.copyto(target, array)

    def array(self, index: int) -> Array:
        """Return the array of an input, output, variable or constant."""
        tensor = self._tensor(index)
        if tensor.data is not None:
            constant: Array = tensor.data
            return constant
        if self._session is None:
            raise BadData("the tensor has no data yet, call allocate_tensors() first")
        variable = self._variable(tensor, index) if index not in self._arrays else None
        if variable is not None:
            return variable
        if index not in self._arrays:
            why = (
                "no operator of the model that runs gives its value"
                if self._preserve_all
                else "values between operators are kept only with experimental_preserve_all_tensors"
            )
            raise BadData(f"tensor {index} {tensor.name!r} is neither an input, an output nor a constant: {why}")
        return self._arrays[index]

    def _variable(self, tensor: TfliteTensor, index: int) -> Array | None:
        """Return what a variable tensor holds, in its own shape; None where it is none that the network keeps."""
        kept = self._session.variables.get(index) if self._session is not None else None
        return kept.reshape(tensor.shape) if kept is not None and kept.size == math.prod(tensor.shape) else kept

    def resize(self, index: int, shape: Dimensions, strict: bool) -> None:
        """Give an input another shape; what was allocated is dropped where that changes anything."""
        if not 0 <= index < len(self.subgraph.tensors):
            raise OperationFailed(f"resize_tensor_input: there is no tensor {index}")
        tensor = self._tensor(index)
        if index not in self._shapes:
            raise BadData(f"resize_tensor_input: tensor {index} {tensor.name!r} is not an input")
        if strict:
            _check_open_sizes(tensor, self._shapes[index], shape)
        if any(size < 0 for size in shape):
            raise OperationFailed(f"resize_tensor_input: sizes must be >= 0, got {list(shape)}")
        if shape != self._shapes[index]:
            self._shapes[index] = shape
            self.close()
            self._network = None

    def invoke(self) -> None:
        """Run on the inputs' arrays and fill the outputs'."""
        if self._session is None or self._network is None:
            raise BadState("invoke: tensors are not allocated, call allocate_tensors() first")
        try:
            results = self._session.run([self._arrays[info.index] for info in self._network.inputs])
        except NNError as error:
            raise OperationFailed(f"invoke: {error}", error.code) from error
        for info, result in zip(self._network.outputs, results, strict=True):
            if info.index not in self._shapes:
                np.copyto(self._arrays[info.index], result)

    def reset_variables(self) -> None:
        """Set variables to what they are at first, but real variable tensors to 0, as LiteRT does."""
        if self._session is not None:
            self._session.reset_variables()
            for kept in self._session.variables.values():
                if kept.dtype.kind == "f":
                    kept[...] = 0

    def close(self) -> None:
        """Drop the session and the arrays."""
        if self._session is not None:
            self._session.close()
        self._session = None
        self._arrays = {}

    def _converted_if_known(self) -> Network | None:
        """Return the network for the file's own shapes; None where it leaves some open, and they do not suit it."""
        try:
            return self._converted()
        except BadData:
            if any(-1 in (self._tensor(index).shape_signature or ()) for index in self.subgraph.inputs):
                return None
            raise

    def _converted(self) -> Network:
        shapes: dict[str | int, Dimensions] = {
            position: self._shapes[index] for position, index in enumerate(self.subgraph.inputs)
        }
        return convert(self._model, shapes, self._subgraph_index, self._preserve_all)

    def _tensor(self, index: int) -> TfliteTensor:
        if not 0 <= index < len(self.subgraph.tensors):
            raise BadData(f"tensor index must be 0 to {len(self.subgraph.tensors) - 1}, got {index}")
        return self.subgraph.tensors[index]


def _read(path: str | bytes | os.PathLike[str] | None, content: bytes | None) -> TfliteModel:
    if content is not None and not isinstance(content, bytes | bytearray | memoryview):
        raise BadData(f"model_content: wanted bytes, got {shown(content)}")
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if path and content:
        raise BadData("give either model_path or model_content, not both")
    if not path and not content:
        raise BadData("model_path or model_content must be given")
    try:
        return read(path or content or b"")
    except TfliteError as error:
        if not path:
            raise
        raise TfliteError(f"{path_shown(path)}: {error}") from error
    except OSError as error:
        raise BadData(f"could not open {path!r}: {error.strerror}") from error


def _check_open_sizes(tensor: TfliteTensor, present: Dimensions, shape: Dimensions) -> None:
    """Require sizes that the file leaves open to be all that changes; without a signature the present ones stay."""
    signature = present if tensor.shape_signature is None else tensor.shape_signature
    fits = len(present) == len(signature) == len(shape) and all(
        a in (-1, b) for a, b in zip(signature, shape, strict=True)
    )
    if not fits:
        raise OperationFailed(
            f"resize_tensor_input: only sizes -1 of {list(signature)} may change of {list(present)}, got {list(shape)}"
        )


def _details(tensor: TfliteTensor, index: int, shape: Dimensions) -> TensorDetails:
    quantization = tensor.quantization
    scales = np.array([] if quantization is None else quantization.scales, np.float32)
    zero_points = np.array([] if quantization is None else quantization.zero_points, np.int32)
    single = (float(scales[0]), int(zero_points[0])) if scales.size == 1 else (0.0, 0)
    signature = shape if tensor.shape_signature is None else tensor.shape_signature
    return {
        "name": tensor.name,
        "index": index,
        "shape": np.array(shape, np.int32),
        "shape_signature": np.array(signature, np.int32),
        "dtype": _WITHOUT_DTYPE.get(tensor.type, np.bytes_) if tensor.type.dtype is None else tensor.type.dtype.type,
        "quantization": single,
        "quantization_parameters": {
            "scales": scales,
            "zero_points": zero_points,
            "quantized_dimension": 0 if quantization is None else quantization.quantized_dimension,
            "block_size": 0,
        },
        "sparsity_parameters": {} if tensor.sparsity is None else _sparsity_details(tensor.sparsity),
    }


def _sparsity_details(sparsity: TfliteSparsity) -> dict[str, Any]:
    """Return how the file stores a sparse constant, by LiteRT's keys."""
    details: dict[str, Any] = {"traversal_order": np.array(sparsity.traversal_order, np.int32)}
    if sparsity.block_map:
        details["block_map"] = np.array(sparsity.block_map, np.int32)
    return {**details, "dim_metadata": [_level_details(level) for level in sparsity.levels]}


def _level_details(level: TfliteLevel) -> dict[str, Any]:
    if level.segments is None or level.indices is None:
        return {"format": 0, "dense_size": level.size}
    segments, indices = level.segments.astype(np.int32), level.indices.astype(np.int32)
    return {"format": 1, "array_segments": segments, "array_indices": indices}
