"""The protocol's messages, of the package `inference`: a table of them, and protobuf's classes made of it.

The field numbers are those of the Open Inference Protocol, and of Triton's extensions of it. Fields that Treadle neither reads
nor writes are left out: protobuf keeps what it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

# A message, then its fields as name=number:type. `*` is repeated, `{}` a map from strings, `?` one of the choices of which there
# is one. A dot makes a message part of another.
TABLE = """
ServerLiveRequest
ServerLiveResponse: live=1:bool
ServerReadyRequest
ServerReadyResponse: ready=1:bool
ModelReadyRequest: name=1:string version=2:string
ModelReadyResponse: ready=1:bool
ServerMetadataRequest
ServerMetadataResponse: name=1:string version=2:string extensions=3:string*
ModelMetadataRequest: name=1:string version=2:string
ModelMetadataResponse:
    name=1:string versions=2:string* platform=3:string inputs=4:.TensorMetadata*
    outputs=5:.TensorMetadata*
ModelMetadataResponse.TensorMetadata: name=1:string datatype=2:string shape=3:int64*
InferParameter:
    bool_param=1:bool? int64_param=2:int64? string_param=3:string? double_param=4:double?
    uint64_param=5:uint64?
InferTensorContents:
    bool_contents=1:bool* int_contents=2:int32* int64_contents=3:int64* uint_contents=4:uint32*
    uint64_contents=5:uint64* fp32_contents=6:float* fp64_contents=7:double* bytes_contents=8:bytes*
ModelInferRequest:
    model_name=1:string model_version=2:string id=3:string parameters=4:InferParameter{}
    inputs=5:.InferInputTensor* outputs=6:.InferRequestedOutputTensor* raw_input_contents=7:bytes*
ModelInferRequest.InferInputTensor:
    name=1:string datatype=2:string shape=3:int64* parameters=4:InferParameter{}
    contents=5:InferTensorContents
ModelInferRequest.InferRequestedOutputTensor: name=1:string parameters=2:InferParameter{}
ModelInferResponse:
    model_name=1:string model_version=2:string id=3:string parameters=4:InferParameter{}
    outputs=5:.InferOutputTensor* raw_output_contents=6:bytes*
ModelInferResponse.InferOutputTensor:
    name=1:string datatype=2:string shape=3:int64* parameters=4:InferParameter{}
    contents=5:InferTensorContents
ModelStreamInferResponse: error_message=1:string infer_response=2:ModelInferResponse
ModelConfigRequest: name=1:string version=2:string
ModelConfigResponse: config=1:ModelConfig
ModelConfig:
    name=1:string platform=2:string version_policy=3:ModelVersionPolicy max_batch_size=4:int32
    input=5:ModelInput* output=6:ModelOutput* instance_group=7:ModelInstanceGroup*
    default_model_filename=8:string dynamic_batching=11:ModelDynamicBatching
    sequence_batching=13:ModelSequenceBatching parameters=14:ModelParameter{} backend=17:string
ModelParameter: string_value=1:string
ModelVersionPolicy: all=2:.All
ModelVersionPolicy.All
ModelInput: name=1:string data_type=2:DataType dims=4:int64*
ModelOutput: name=1:string data_type=2:DataType dims=3:int64*
ModelInstanceGroup: name=1:string count=2:int32 kind=4:.Kind
ModelDynamicBatching: preferred_batch_size=1:int32* max_queue_delay_microseconds=2:uint64
ModelSequenceBatching: max_sequence_idle_microseconds=1:uint64
ModelStatisticsRequest: name=1:string version=2:string
ModelStatisticsResponse: model_stats=1:ModelStatistics*
ModelStatistics:
    name=1:string version=2:string last_inference=3:uint64 inference_count=4:uint64
    execution_count=5:uint64 inference_stats=6:InferStatistics batch_stats=7:InferBatchStatistics*
InferStatistics:
    success=1:StatisticDuration fail=2:StatisticDuration queue=3:StatisticDuration
    compute_input=4:StatisticDuration compute_infer=5:StatisticDuration compute_output=6:StatisticDuration
    cache_hit=7:StatisticDuration cache_miss=8:StatisticDuration
InferBatchStatistics:
    batch_size=1:uint64 compute_input=2:StatisticDuration compute_infer=3:StatisticDuration
    compute_output=4:StatisticDuration
StatisticDuration: count=1:uint64 ns=2:uint64
ModelRepositoryParameter: bool_param=1:bool? int64_param=2:int64? string_param=3:string? bytes_param=4:bytes?
RepositoryIndexRequest: repository_name=1:string ready=2:bool
RepositoryIndexResponse: models=1:.ModelIndex*
RepositoryIndexResponse.ModelIndex: name=1:string version=2:string state=3:string reason=4:string
RepositoryModelLoadRequest:
    repository_name=1:string model_name=2:string parameters=3:ModelRepositoryParameter{}
RepositoryModelLoadResponse
RepositoryModelUnloadRequest:
    repository_name=1:string model_name=2:string parameters=3:ModelRepositoryParameter{}
RepositoryModelUnloadResponse
SystemSharedMemoryStatusRequest: name=1:string
SystemSharedMemoryStatusResponse: regions=1:.RegionStatus{}
SystemSharedMemoryStatusResponse.RegionStatus: name=1:string key=2:string offset=3:uint64 byte_size=4:uint64
SystemSharedMemoryRegisterRequest: name=1:string key=2:string offset=3:uint64 byte_size=4:uint64
SystemSharedMemoryRegisterResponse
SystemSharedMemoryUnregisterRequest: name=1:string
SystemSharedMemoryUnregisterResponse
CudaSharedMemoryStatusRequest: name=1:string
CudaSharedMemoryStatusResponse
CudaSharedMemoryUnregisterRequest: name=1:string
CudaSharedMemoryUnregisterResponse
"""
ENUMS = """
DataType: TYPE_INVALID TYPE_BOOL TYPE_UINT8 TYPE_UINT16 TYPE_UINT32 TYPE_UINT64 TYPE_INT8 TYPE_INT16 TYPE_INT32
    TYPE_INT64 TYPE_FP16 TYPE_FP32 TYPE_FP64 TYPE_STRING TYPE_BF16
ModelInstanceGroup.Kind: KIND_AUTO KIND_GPU KIND_CPU KIND_MODEL
"""
_CHOICE = "parameter_choice"  # what the one group of choices is called, wherever there is one

_FIELD = re.compile(r"(\w+)=(\d+):(\.?\w+)(\*|\{\}|\?)?")
_Proto = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    name: getattr(_Proto, f"TYPE_{name.upper()}")
    for name in ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64")
}


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    """A pool of our own: a client in the same process may have the same messages in protobuf's."""
    file = descriptor_pb2.FileDescriptorProto(name="treadle/inference.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    messages, enums = _rows(TABLE), _rows(ENUMS)
    for name in messages:
        outer, _, inner = name.rpartition(".")
        made[name] = (made[outer].nested_type if outer else file.message_type).add(name=inner)
    for name, values in enums.items():
        outer, _, inner = name.rpartition(".")
        enum = (made[outer].enum_type if outer else file.enum_type).add(name=inner)
        for number, value in enumerate(values.split()):
            enum.value.add(name=value, number=number)
    for name, fields in messages.items():
        for field in _FIELD.finditer(fields):
            _add_field(made[name], name, field, enums)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _rows(table: str) -> dict[str, str]:
    """The entries of a table: a name, then what stands after it, on lines that are set in, too."""
    rows = table.strip().replace("\n    ", " ").splitlines()
    return {name.strip(): rest for name, _, rest in (row.partition(":") for row in rows)}


def _add_field(message: Any, owner: str, found: re.Match[str], enums: Collection[str]) -> None:
    name, number, kind, mark = found.groups()
    field = message.field.add(name=name, number=int(number), label=_Proto.LABEL_OPTIONAL)
    full = f".{PACKAGE}.{owner}{kind}" if kind.startswith(".") else f".{PACKAGE}.{kind}"
    if mark == "{}":
        entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_Proto.TYPE_STRING, label=_Proto.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, type=_Proto.TYPE_MESSAGE, type_name=full, label=_Proto.LABEL_OPTIONAL)
        full, kind, mark = f".{PACKAGE}.{owner}.{entry_name}", entry_name, "*"
    if mark == "*":
        field.label = _Proto.LABEL_REPEATED
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        is_enum = full.removeprefix(f".{PACKAGE}.") in enums
        field.type = _Proto.TYPE_ENUM if is_enum else _Proto.TYPE_MESSAGE
        field.type_name = full
    if mark == "?":
        if not message.oneof_decl:
            message.oneof_decl.add(name=_CHOICE)
        field.oneof_index = 0


@cache
def message(name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))
