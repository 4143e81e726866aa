// Prepares what all gathers of a pass read of the bonds.
//
// Macro: AGGR (of the gathers).
#define BONDS 0
#include "rows.cuh"
#include "gather.cuh"

__device__ __forceinline__ real inverse_root_degree(const Parameters& p, int atom) {
    const int begin = __ldg(p.rowptr + atom), end = __ldg(p.rowptr + atom + 1), loops = AGGR == AGGR_GCN_LOOPS;
    int degree = end - begin + loops;
    for (int bond = begin; loops && bond < end; bond++) degree -= __ldg(p.col + bond) == atom;
    return degree > 0 ? real(1) / root(static_cast<real>(degree)) : real(0);
}

// Returns the reverse of a bond that points at an atom, among the bonds of its source in order. The r-th of equal bonds is paired with the
// r-th of the reverse ones. Batches have both directions of every bond, which is checked where they are made (molgcn/data): without one, the
// gradients of all gathers would be those of another graph. The result stays among the source's bonds all the same, as memory is read by it.
__device__ __forceinline__ int reverse_of(const Parameters& p, int atom, int bond) {
    const int source = __ldg(p.col + bond), first = __ldg(p.rowptr + atom);
    int rank = 0;
    while (bond - rank > first && __ldg(p.col + bond - rank - 1) == source) rank++;
    int begin = __ldg(p.rowptr + source), end = __ldg(p.rowptr + source + 1);
    const int last = max(end - 1, 0);
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (__ldg(p.col + middle) < atom)
            begin = middle + 1;
        else
            end = middle;
    }
    return min(begin + rank, last);
}

extern "C" __global__ void __launch_bounds__(256) rows_scale(const __grid_constant__ Parameters p) {
    const int atom = blockIdx.x * blockDim.x + threadIdx.x;
    wait_for_previous();
    if (atom < atoms_of(p)) p.new_scale[atom] = inverse_root_degree(p, atom);
}

// Several threads share an atom's bonds. The batch is older than the previous kernel, so that each finds its first pair before it waits.
extern "C" __global__ void __launch_bounds__(256) rows_pair(const __grid_constant__ Parameters p) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x, atom = thread / p.lanes;
    const bool there = atom < atoms_of(p);
    const int begin = there ? __ldg(p.rowptr + atom) : 0, end = there ? __ldg(p.rowptr + atom + 1) : 0;
    const auto pair = [&](int bond) { return Incoming::row_of(p.code, reverse_of(p, atom, bond)); };
    int bond = begin + thread % p.lanes;
    const int first = bond < end ? pair(bond) : 0;
    wait_for_previous();
    if (bond < end) p.new_paired[bond] = first;
    for (bond += p.lanes; bond < end; bond += p.lanes) p.new_paired[bond] = pair(bond);
}
