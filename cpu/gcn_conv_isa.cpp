// Compiled once per instruction set, with MOLGCN_ISA (a namespace) and MOLGCN_VECTOR_BYTES set by CMakeLists.txt.
#include "conv_kernels.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

extern const ConvKernels<float> float_conv_kernels{conv_forward<float>, conv_backward<float>, conv_entries<float>};
extern const ConvKernels<double> double_conv_kernels{conv_forward<double>, conv_backward<double>, conv_entries<double>};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
