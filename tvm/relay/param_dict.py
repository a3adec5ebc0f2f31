"""`relay.param_dict`, as it was called before 0.8: parameter files."""

from ..runtime.params import load_param_dict, save_param_dict

__all__ = ["load_param_dict", "save_param_dict"]
