// Compiled once per instruction set, with MOLGCN_ISA (a namespace) and MOLGCN_VECTOR_BYTES set by CMakeLists.txt.
#include <algorithm>

#include "peak.hpp"
#include "network_local.hpp"
#include "network_synced.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
void forward(const Problem<T>& problem, const ForwardOutputs<T>& out) {
    const Network<T> net(problem, Orders::forward);
    if (problem.batch_statistics() && problem.num_norms > 0) {
        SyncedNetwork<T>(net).forward(out);
    } else {
        forward_local(net, out);
    }
}

template <typename T>
void backward(const Problem<T>& problem, const Gradients<T>& grads) {
    const bool synced = problem.batch_statistics() && problem.num_norms > 0;
    const bool again = !synced || problem.pool == Pool::max;  // computes layers of forward again
    const Network<T> net(problem, again ? Orders::both : Orders::backward);
    if (synced) {
        SyncedNetwork<T>(net).backward(grads);
    } else {
        backward_local(net, grads);
    }
}

double peak(int num_threads, long iterations) {
    return peak_gflops(num_threads, iterations);
}

extern const Kernels<float> float_kernels{forward<float>, backward<float>};
extern const Kernels<double> double_kernels{forward<double>, backward<double>};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
