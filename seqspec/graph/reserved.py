"""Names that a part of a model cannot have, because they already mean something in the PyTorch class it becomes."""

from __future__ import annotations

from keyword import iskeyword

_MODULE = """
T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval
extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia
named_buffers named_children named_modules named_parameters parameters register_backward_hook register_buffer
register_forward_hook register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory
state_dict to to_empty train training type xpu zero_grad
"""
MODULE_ATTRIBUTES = frozenset(_MODULE.split())
"""Attributes of torch.nn.Module; a part of the same name would replace them."""

_FILE = "F NamedTuple Output STATE State Tensor checkpoint flatten functools math nest nn past_from torch"
FILE_NAMES = frozenset(_FILE.split())
"""Names of the emitted file that nothing else may take."""

_READ_BY_FORWARD = FILE_NAMES | {"self", "past", "range", "zip"}


def usable(name: str) -> bool:
    """Whether a part may have this name: neither Python, torch.nn.Module nor the emitted classes use it."""
    if iskeyword(name) or name in MODULE_ATTRIBUTES or name == "checkpoint":
        return False
    return not name.startswith("__") and name != "_"  # whose norm would be `__norm`


def usable_argument(name: str) -> bool:
    """Whether an input may have this name: neither Python nor the `forward` that takes it uses it."""
    return not (iskeyword(name) or name in _READ_BY_FORWARD or name.startswith("__"))
