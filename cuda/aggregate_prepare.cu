// D^-1/2 of each atom and the atom that each bond points at.
#include "aggregate.cuh"

extern "C" __global__ void __launch_bounds__(256) aggregate_prepare(const __grid_constant__ Parameters p) {
    const int num_nodes = num_atoms(p);
    for (int node = blockIdx.x * blockDim.x + threadIdx.x; node < num_nodes; node += gridDim.x * blockDim.x) {
        const int begin = __ldg(p.rowptr + node), end = __ldg(p.rowptr + node + 1);
        int degree = end - begin + SELF_LOOPS;
        for (int bond = begin; bond < end; bond++) {
            degree -= SELF_LOOPS && __ldg(p.col + bond) == node;
            p.target[bond] = node;
        }
        p.scale[node] = degree > 0 ? real(1) / sqrt(static_cast<real>(degree)) : real(0);
    }
}
