# SPDX-License-Identifier: Apache-2.0
"""Every engine that is measured, as a function from the bytes of a .tflite file to a function that runs it once.

An engine that is not installed, or does not take a network, raises something that says so: its row then says why.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Array: TypeAlias = npt.NDArray[Any]
Run: TypeAlias = "Callable[[Sequence[Array]], npt.ArrayLike]"
"""The inputs to the first output."""

THREADS = 2
OURS = {"PoCL": "opencl:pocl", "Intel": "opencl:intel", "CPU driver": "cpu"}
"""Our devices by the name in the tables, and their selectors."""
IN_HALVES = ", float16"
"""Behind the name of a device: the same network in float16."""
LITERT, LITERT_OWN = "LiteRT XNNPACK", "LiteRT own kernels"
NATIVE = (LITERT, LITERT_OWN, "ONNX Runtime", "OpenVINO")
OPENCL_PEERS = ("tinygrad OpenCL", "OpenCV OpenCL")
PROBE = "distance of the cores"
PACKAGES = (
    *("numpy", "pyopencl", "pocl-binary-distribution", "intel-opencl-rt", "ai-edge-litert"),
    *("onnxruntime", "openvino", "tinygrad", "opencv-python-headless"),
)
_TURNS = 4000


def ours(selector: str) -> Callable[[bytes], Run]:
    """Return the loader of one of our devices."""

    def load(model: bytes) -> Run:
        import nn_runtime as nn

        session = nn.load(model).compile(device=selector)
        return lambda data: session.run(data)[0]

    return load


def ours_float16(selector: str) -> Callable[[bytes], Run]:
    """Return the loader of one of our devices for float32 networks whose every number becomes float16, inputs too."""

    def load(model: bytes) -> Run:
        from networks import halved

        import nn_runtime as nn

        session = nn.load(halved(model)).compile(device=selector)
        halves: dict[int, list[Array]] = {}

        def run(data: Sequence[Array]) -> Array:
            if id(data) not in halves:
                halves[id(data)] = [one.astype(np.float16) for one in data]
            return session.run(halves[id(data)])[0]

        return run

    return load


def litert(model: bytes, *, xnnpack: bool) -> Run:
    """LiteRT with its default delegate XNNPACK, or with its own kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.AUTO if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=model, num_threads=THREADS, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    sources = [one["index"] for one in interpreter.get_input_details()]
    result = interpreter.get_output_details()[0]["index"]

    def run(data: Sequence[Array]) -> Array:
        for source, values in zip(sources, data, strict=True):
            interpreter.set_tensor(source, values)
        interpreter.invoke()
        output: Array = interpreter.get_tensor(result)
        return output

    return run


def onnx_runtime_on(provider: str) -> Callable[[bytes], Run]:
    """ONNX Runtime with one of its providers, for networks as `conversion.to_onnx` makes them."""

    def load(model: bytes) -> Run:
        import onnxruntime
        from conversion import to_onnx

        if provider not in onnxruntime.get_available_providers():
            raise RuntimeError(f"this ONNX Runtime has no {provider}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        session = onnxruntime.InferenceSession(to_onnx(model), options, providers=[provider])
        if provider not in session.get_providers():
            raise RuntimeError(f"ONNX Runtime fell back from {provider}: its log says why")
        names = [one.name for one in session.get_inputs()]

        def run(data: Sequence[Array]) -> Array:
            output: Array = session.run(None, dict(zip(names, data, strict=True)))[0]
            return output

        return run

    return load


def openvino(model: bytes) -> Run:
    """OpenVINO on the CPU, with arithmetic in float32 and lowest latency; it reads .tflite itself."""
    import openvino
    from networks import as_file

    core = openvino.Core()
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY"}
    with as_file(model) as path:
        request = core.compile_model(core.read_model(path), "CPU", hints).create_infer_request()

    def run(data: Sequence[Array]) -> Array:
        request.infer(list(data), share_inputs=True)
        output: Array = request.get_output_tensor(0).data.copy()
        return output

    return run


def tinygrad(model: bytes) -> Run:
    """Tinygrad's OpenCL backend on PoCL, as one graph by its TinyJit."""
    os.environ.update(DEV="CL", OPENCL_PATH=_pocl_only())
    from conversion import to_onnx
    from networks import as_file
    from tinygrad import Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    with as_file(to_onnx(model)) as path:
        network = OnnxRunner(path)
    name = next(iter(network.graph_inputs))
    jitted = TinyJit(lambda data: next(iter(network({name: data}).values())).realize())
    return lambda data: jitted(Tensor(data[0]).realize()).numpy()


def opencv(model: bytes) -> Run:
    """OpenCV's dnn module with its OpenCL target on PoCL; version 4, for version 5 has no targets yet."""
    os.environ.update(
        OPENCV_OPENCL_RUNTIME=_pocl_only(),
        OPENCV_OPENCL_DEVICE="Portable Computing Language:CPU:",
        OPENCV_DNN_OPENCL_ALLOW_ALL_DEVICES="1",  # else it silently computes without OpenCL
    )
    import cv2
    from conversion import to_onnx

    if int(cv2.__version__.split(".")[0]) > 4:
        raise RuntimeError(f"OpenCV {cv2.__version__} computes without OpenCL whatever the target: install 4")
    cv2.ocl.setUseOpenCL(True)
    if not cv2.ocl.useOpenCL():
        raise RuntimeError("OpenCV finds no OpenCL")
    cv2.setNumThreads(THREADS)
    buffer = np.frombuffer(to_onnx(model), np.uint8)
    network = cv2.dnn.readNetFromONNX(buffer)
    network.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    network.setPreferableTarget(cv2.dnn.DNN_TARGET_OPENCL)

    def run(data: Sequence[Array]) -> Array:
        network.setInput(data[0])
        output: Array = network.forward()
        return output.view(np.uint8) ^ 128 if output.dtype == np.int8 else output  # uint8 inside is int8, less 128

    return run


def probe(_: bytes) -> Run:
    """How long two cores need to see each other's writes, as two work-groups of PoCL: ns for one way; 0: not known."""
    _pocl_only()
    import pyopencl as cl

    device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
    context = cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    source = """
    kernel void ping_pong(volatile global int *ball, int turns)
    {
        const int mine = get_group_id(0);
        int patience = 1 << 22;
        for (int turn = 0; turn < turns && patience > 0; ++turn) {
            while (*ball != 2 * turn + mine && --patience > 0)
                ;
            if (patience > 0)
                *ball = 2 * turn + mine + 1;
        }
    }
    """
    kernel = cl.Kernel(cl.Program(context, source).build(), "ping_pong")
    ball = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64)
    kernel.set_args(ball, np.int32(_TURNS))

    def run(_: Sequence[Array]) -> Array:
        cl.enqueue_fill_buffer(queue, ball, np.zeros(1, np.int32), 0, 64)
        event = cl.enqueue_nd_range_kernel(queue, kernel, (2,), (1,))
        event.wait()
        state = np.empty(1, np.int32)
        cl.enqueue_copy(queue, state, ball)
        if state[0] != 2 * _TURNS:
            return np.array([0.0])  # the groups did not run at the same time
        return np.array([(event.profile.end - event.profile.start) / (2 * _TURNS)])

    return run


LOADERS: Mapping[str, Callable[[bytes], Run]] = {
    **{name: ours(selector) for name, selector in OURS.items()},
    **{f"{name}{IN_HALVES}": ours_float16(selector) for name, selector in OURS.items()},
    LITERT: lambda model: litert(model, xnnpack=True),
    LITERT_OWN: lambda model: litert(model, xnnpack=False),
    "ONNX Runtime": onnx_runtime_on("CPUExecutionProvider"),
    "OpenVINO": openvino,
    "tinygrad OpenCL": tinygrad,
    "OpenCV OpenCL": opencv,
    PROBE: probe,
}


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of packages; by default of the engines, the devices and what we stand on."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _pocl_only() -> str:
    """Let this process see PoCL alone, able to compile on this processor, and return the loader that sees it."""
    folder = _libraries()
    os.environ["OCL_ICD_VENDORS"] = str(next(folder.glob("libpocl*")))
    os.environ["POCL_DEVICES"] = "pthread"  # the usual one alone: others take the first
    from gpu_driver.discovery.platforms import find_devices

    if not any(device.usable for device in find_devices()):
        raise RuntimeError("PoCL does not work here: nnrt doctor says why")
    return str(next(folder.glob("libOpenCL*")))


def _libraries() -> Path:
    """Return PyOpenCL's folder of libraries: its loader, and PoCL from PyPI."""
    spec = importlib.util.find_spec("pyopencl")
    if spec is None or spec.origin is None:
        raise RuntimeError("PyOpenCL is not installed")
    return Path(spec.origin).parent / ".libs"
