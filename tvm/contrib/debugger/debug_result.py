"""`tvm.contrib.debugger.debug_result`: what a debug executor found."""

from ....formats.param_dict import save_param_dict as save_tensors
from ...graphs.dump import GRAPH_FILE, TRACE_FILE, DebugResult

GRAPH_DUMP_FILE_NAME, CHROME_TRACE_FILE_NAME = GRAPH_FILE, TRACE_FILE

__all__ = ["CHROME_TRACE_FILE_NAME", "GRAPH_DUMP_FILE_NAME", "DebugResult", "save_tensors"]
