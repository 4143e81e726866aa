// Compiled once per instruction set, with MOLGCN_ISA (a namespace) and MOLGCN_VECTOR_BYTES set by CMakeLists.txt.
#include "attention_kernels.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
void forward(const Attention<T>& call, const Walk& by_target, T* out, T* softmax) {
    with_size(call, [&](const auto& sized) { attention_forward(sized, by_target, out, softmax); });
}

template <typename T>
void backward(const Attention<T>& call, const Walk& by_target, const Walk& by_source, const AttentionGradients<T>& grads) {
    with_size(call, [&](const auto& sized) { attention_backward(sized, by_target, by_source, grads); });
}

extern const AttentionKernels<float> float_attention_kernels{forward<float>, backward<float>};
extern const AttentionKernels<double> double_attention_kernels{forward<double>, backward<double>};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
