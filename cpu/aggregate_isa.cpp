// Compiled once per instruction set, with MOLGCN_ISA (a namespace) and MOLGCN_VECTOR_BYTES set by CMakeLists.txt.
#include "aggregate_kernels.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

extern const AggregateKernels<float> float_aggregate_kernels{pull<float>, weight_gradients<float>};
extern const AggregateKernels<double> double_aggregate_kernels{pull<double>, weight_gradients<double>};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
