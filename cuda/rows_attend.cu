// Attention of atoms to their neighbours and themselves: the weighted sums of rows, in one pass over the bonds.
#include "rows_attend.cuh"

// Computes the columns of one block of heads of an atom's result, and stores the softmax.
__device__ __forceinline__ Columns attend(const Attention& p, const Lane& lane, const Vectors& of, int atom, bool there) {
    const Bonds bonds(p, atom, there);
    const Columns x = load_row(lane, p, p.source, atom, there);
    const Columns target = V2 ? load_row(lane, p, p.target, atom, there) : Columns();
    const real of_target = V2 ? real(0) : product(of.att_target, x);
    WeightedSum sum;
    Columns rows = {};
    int others = 0;
    bonds.each_bond(p, [&](bool is_bond, int bond, int from) {
        const Columns of_source = load_row(lane, p, p.source, from, is_bond);
        Columns row = {};
        if (BONDS) row = load_row(lane, p, p.bonds, is_bond ? Bonds::row_of(p, bond) : 0, is_bond);
        const Score it(p, of, of_source, target, of_target, row);
        if (!is_bond) return;
        sum.raise(it.score);
        sum.add(it.score, kept(p, bond, lane.head, false), of_source);
        if (BONDS) add(rows, real(1), row);
        others++;
    });
    const Score own(p, of, x, target, of_target, Bonds::divided(rows, others));
    if (!there) return {};
    sum.raise(own.score);
    sum.add(own.score, kept(p, atom, lane.head, true), x);
    const real scale = sum.finish();
    if (lane.leads()) {
        real* at = p.softmax + size_t(atom) * p.softmax_stride + 2 * lane.head;
        at[0] = sum.largest;
        at[1] = scale;
    }
    return sum.columns;
}

extern "C" __global__ void __launch_bounds__(threads, resident) rows_attend(const __grid_constant__ Attention p) {
    const int blocks = CONCAT ? head_blocks : 1, parts = gridDim.x / blocks, num_atoms = atoms_of(p);
    wait_for_previous();
    const Lane first(CONCAT ? blockIdx.x % blocks : 0);
    const Vectors of_first(first, p);
    const int here = blockIdx.x / blocks * groups + threadIdx.x / group, first_of_warp = here - threadIdx.x % 32 / group;
    for (int begin = 0; begin + first_of_warp < p.num_atoms; begin += parts * groups) {
        const int atom = p.backwards ? p.num_atoms - 1 - begin - here : begin + here;
        const bool row = atom >= 0 && atom < p.num_atoms, there = row && atom < num_atoms;
        real* to = p.out + size_t(row ? atom : 0) * p.result_stride;
#if CONCAT
        Columns x = attend(p, first, of_first, atom, there && first.there);
        if (!row) continue;
        if (there && p.bias != nullptr) add(x, real(1), load(first, p.bias));
        store(first, to, x);
        if (first.leads() && first.head == HEADS - 1)
            for (int column = columns_of_result; column < p.result_stride; column++) to[column] = 0;
#else
        Columns sum = {};
#pragma unroll 1
        for (int block = 0; block < head_blocks; block++) {
            const Lane lane(block);
            add(sum, real(1), attend(p, lane, Vectors(lane, p), atom, there && lane.there));
        }
        each([&](int r, int v) {
            real& x = sum.at[r].of[v];
#pragma unroll
            for (int mask = LANES; mask < group; mask *= 2) x += shuffle_xor(x, mask);
            x /= HEADS;
        });
        const Lane lane(0);
        if (!row || lane.head > 0) continue;
        if (there && p.bias != nullptr) add(sum, real(1), load(lane, p.bias));
        store(lane, to, sum);
        if (lane.leads())
            for (int column = columns_of_result; column < p.result_stride; column++) to[column] = 0;
#endif
    }
}
