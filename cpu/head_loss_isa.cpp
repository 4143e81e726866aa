// Compiled once per instruction set, with MOLGCN_ISA (a namespace) and MOLGCN_VECTOR_BYTES set by CMakeLists.txt.
#include "head_kernels.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

extern const HeadKernels<float> float_head_kernels{head_forward<float>, head_backward<float>};
extern const HeadKernels<double> double_head_kernels{head_forward<double>, head_backward<double>};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
