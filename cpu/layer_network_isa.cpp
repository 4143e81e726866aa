// Compiled once per instruction set, with MOLGCN_ISA (a namespace) and MOLGCN_VECTOR_BYTES set by CMakeLists.txt.
#include "tile_pass.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
void run_pass(const LayerRun<T>& run) {
    TilePass<T>{run}();
}

extern const LayerKernel<float> float_layer_pass = run_pass<float>;
extern const LayerKernel<double> double_layer_pass = run_pass<double>;

}  // namespace MOLGCN_ISA
}  // namespace molgcn
