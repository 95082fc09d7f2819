"""The operators level D2 was tested with, and the scan of a first step that refuses any other by name.

D2 promises the same bits on different device types. On CPUs the types are emulated (threads, oneDNN, instruction set)
and the list below is what `tests/training/determinism/test_operators.py` ran on all of them; a model that uses anything
else is refused before it has taken a step, so that nothing is promised that was not seen.
"""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from springtide.errors import NondeterminismError

#: Operators that move or make data and compute no float in an order that could differ.
EXACT_NAMES = """
    _local_scalar_dense _reshape_alias _to_copy _unsafe_view alias any arange argmax as_strided bernoulli_ bitwise_not
    cat clone constant_pad_nd copy_ detach detach_ empty empty_like empty_strided eq expand fill_ full full_like ge gt
    index_select item le lift_fresh logical_not lt masked_fill masked_fill_ ne neg new_empty new_empty_strided new_ones
    new_zeros ones ones_like permute rand rand_like random_ randn relu relu_ repeat scalar_tensor select select_backward
    set_ slice slice_backward split squeeze stack t threshold_backward transpose unbind unsqueeze view where zero_ zeros
    zeros_like _record_function_enter_new _record_function_exit index tril randperm
    max_pool2d_with_indices max_pool2d_with_indices_backward embedding randint abs clamp clamp_ maximum
    minimum bitwise_and isfinite split_with_sizes unsafe_split unsafe_chunk native_dropout
    native_dropout_backward randn_like roll _foreach_copy_
"""

#: Operators that round: each is used by the models of tests/training/scripts/zoo.py, which had the same bits on every
#: emulated device type.
ORDERED_NAMES = """
    _foreach_mul_ _foreach_norm _log_softmax _log_softmax_backward_data _safe_softmax _softmax
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    _softmax_backward_data add add_ addcdiv_ addcmul_ addmm avg_pool2d avg_pool2d_backward
    binary_cross_entropy_with_logits bmm convolution convolution_backward div div_ embedding_dense_backward exp
    gelu gelu_backward lerp_ linalg_vector_norm log mean mm mse_loss mse_loss_backward mul mul_
    native_batch_norm native_batch_norm_backward native_layer_norm native_layer_norm_backward nll_loss_backward
    nll_loss_forward pow reciprocal rsqrt sigmoid sigmoid_backward silu silu_backward sqrt sub sum tanh
    tanh_backward
"""

EXACT = frozenset(EXACT_NAMES.split())
ORDERED = frozenset(ORDERED_NAMES.split())
TESTED = EXACT | ORDERED


class OperatorScan(TorchDispatchMode):
    """Notes every operator that runs under it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def check_operators(seen: set[str]) -> None:
    """Refuse operators that level D2 was not tested with, by name."""
    unknown = sorted(seen - TESTED)
    if unknown:
        raise NondeterminismError(
            f"level D2 was not tested with {', '.join(unknown)}; use determinism D1 (one device type), or another "
            "operator. The tested list is in springtide.training.determinism.operators"
        )
