"""The protocol's descriptions of models, as plain data for both transports: configuration, statistics, the repository."""

from __future__ import annotations

from typing import Any

from ..formats.ports import Port
from .datatypes import described
from .endpoint import Endpoint
from .model import Model
from .repository import Repository
from .service import Service
from .statistics import INTERVALS, Count, Statistics

# The element types that Triton's clients know, as they call them
_TRITON = {
    name: f"TYPE_{name}"
    for name in (
        *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
        *("FP16", "FP32", "FP64", "BF16"),
    )
} | {"BYTES": "TYPE_STRING"}


def model_config(model: Model, endpoint: Endpoint) -> dict[str, Any]:
    """A model's configuration in the terms of Triton's clients: what of it has a meaning here."""
    is_merged = endpoint.function in model.merged
    config = model.config
    described: dict[str, Any] = {
        "name": model.name,
        "platform": "treadle",
        "backend": "treadle",
        "version_policy": {"all": {}},
        "max_batch_size": config.max_batch if is_merged else 0,
        "input": [_tensor(port, is_merged) for port in endpoint.inputs],
        "output": [_tensor(port, is_merged) for port in endpoint.outputs],
        "instance_group": [{"name": model.name, "kind": "KIND_CPU", "count": config.instances or 1}],
        "default_model_filename": model.path.name,
        "parameters": {
            "sha256": {"string_value": model.digest},
            "batching": {"string_value": model.merging[endpoint.function].text},
        },
    }
    if is_merged:
        described["dynamic_batching"] = {
            "preferred_batch_size": list(config.preferred),
            "max_queue_delay_microseconds": int(config.max_delay * 1e6),
        }
    if config.state:
        described["sequence_batching"] = {"max_sequence_idle_microseconds": int(config.sequence_idle * 1e6)}
    return described


def _tensor(port: Port, is_merged: bool) -> dict[str, Any]:
    """Triton leaves the batch out of a tensor's shape."""
    datatype, shape = described(port)
    return {
        "name": port.name,
        "data_type": _TRITON.get(datatype, "TYPE_INVALID"),
        "dims": shape[1:] if is_merged else shape,
    }


def model_statistics(repository: Repository, name: str = "", version: str = "") -> list[dict[str, Any]]:
    """Of one model, or of all. Raises ServeError."""
    if name:
        model, endpoint = repository.endpoint(name, version)
        models = [(model, endpoint)]
    else:
        models = [(model, endpoint) for model in repository.models() for endpoint in model.endpoints.values()]
    return [_statistics(model, endpoint, model.statistics[endpoint.function]) for model, endpoint in models]


def _statistics(model: Model, endpoint: Endpoint, counted: Statistics) -> dict[str, Any]:
    def count(each: Count) -> dict[str, int]:
        return {"count": each.count, "ns": each.ns}

    nothing = {"count": 0, "ns": 0}
    return {
        "name": model.name_of(endpoint.function),
        "version": str(model.version),
        "batching": model.merging[endpoint.function].text,
        "last_inference": counted.last_ms,
        "inference_count": counted.rows,
        "execution_count": counted.calls,
        "inference_stats": {
            "success": count(counted.success),
            "fail": count(counted.fail),
            "queue": count(counted.queue),
            "compute_input": count(counted.input),
            "compute_infer": count(counted.compute),
            "compute_output": count(counted.output),
            "cache_hit": nothing,
            "cache_miss": nothing,
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": count(gathering),
                "compute_infer": count(call),
                "compute_output": {"count": call.count, "ns": 0},  # each request has a view of its rows
            }
            for rows, (gathering, call) in sorted(counted.sizes.copy().items())
        ],
    }


def overview(service: Service) -> dict[str, Any]:
    """The contents of the page at /: each function that clients can call, with its tensors, counts and times."""
    rows = []
    for model in service.repository.models():
        for name, endpoint in model.endpoints.items():
            counted = model.statistics[name]
            rows.append(
                {
                    "name": model.name_of(name),
                    "version": model.version,
                    "inputs": list(map(_port, endpoint.inputs)),
                    "outputs": list(map(_port, endpoint.outputs)),
                    "batching": model.merging[name].text,
                    "sha256": model.digest,
                    "answered": counted.success.count,
                    "refused": counted.fail.count,
                    "times": list(counted.times),
                    "waits": list(counted.waits),
                    "waiting": len(model.line.waiting),
                    "running": model.line.running,
                    "sequences": len(model.sequences[name]),
                }
            )
    problems = [
        {"name": name, "version": version, "state": state.state, "reason": state.reason}
        for name, version, state in service.repository.index()
        if state.reason or state.state != "READY"
    ]
    return {
        "ready": service.is_ready,
        "waiting": service.scheduler.waiting(),
        "running": service.scheduler.running(),
        "intervals": INTERVALS,
        "functions": rows,
        "texts": [
            {"name": model.name, "task": model.texts.text.task, "chats": bool(model.texts.text.template)}
            for model in {each.name: each for each in service.repository.models() if each.texts is not None}.values()
        ],
        "history": list(service.history.rows),
        "problems": problems,
    }


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "datatype": described(port)[0], "shape": list(port.shape or ())}


def repository_index(repository: Repository, is_ready: bool = False) -> list[dict[str, str]]:
    """The models in the folder, or only those that are ready."""
    rows = repository.index()
    return [
        {"name": name, "version": str(version), "state": state.state, "reason": state.reason}
        for name, version, state in rows
        if state.state == "READY" or not is_ready
    ]
