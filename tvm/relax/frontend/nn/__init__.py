"""`relax.frontend.nn`: networks as modules, which `export_tvm` makes programs of."""

from ...._lazy import lazy

_NAMES = {
    ".core": "Effect IOEffect Module ModuleDict ModuleList Object Parameter Tensor",
    ".modules": """
        Attention Conv1D Conv2D Conv3D ConvTranspose1D Embedding GELU GroupNorm Identity KVCache LayerNorm Linear
        RMSNorm ReLU SiLU TimestepEmbedding Timesteps
    """,
    ".op": """
        add argsort astype broadcast_to chunk concat conv1d conv1d_transpose conv2d conv3d cumsum divide equal exp full gelu
        get_timestep_embedding greater greater_equal group_norm layer_norm less less_equal matmul maximum minimum
        multiply negative not_equal ones pad permute permute_dims relu repeat reshape rms_norm
        scaled_dot_product_attention sigmoid silu softmax sort
        split sqrt square squeeze subtract sum take tanh topk triu unsqueeze where wrap_nested zeros
    """,
}

__getattr__, __dir__ = lazy(__name__, "core modules op spec", names=_NAMES)
