// Attention of atoms to their neighbours and themselves: the weighted sums of rows, in one pass over the bonds.
//
// Macro: LEAVES (the moments of the result are left for the norm that reads it).
#include "rows_attend.cuh"

#if LEAVES
// A lane's sums of distances of its columns from those of its first row, as in QuadDistances of rows_parts.cuh.
struct ColumnDistances {
    int count = 0;
    Columns origin = {}, sum = {}, squares = {};

    __device__ __forceinline__ void add(const Columns& x) {
        if (count++ == 0) origin = x;
        each_column([&](int r, int v) {
            const real distance = x.at[r].of[v] - origin.at[r].of[v];
            sum.at[r].of[v] += distance, squares.at[r].of[v] = multiply_add(distance, distance, squares.at[r].of[v]);
        });
    }
    // Leaves the moments of the block's rows in `part`. `memory` has room for the columns of all threads and a number for each group.
    __device__ __forceinline__ void leave(const Attention& p, const Lane& lane, real* part, unsigned char* memory) {
        Columns* all = reinterpret_cast<Columns*>(memory);
        int* counts = reinterpret_cast<int*>(all + threads);
        __syncthreads();
        all[threadIdx.x] = origin;
        if (threadIdx.x % group == 0) counts[threadIdx.x / group] = count;
        __syncthreads();
        int some = 0, total = 0;  // some: a group with rows, if there is one
        while (some + 1 < groups && counts[some] == 0) some++;
        for (int i = 0; i < groups; i++) total += counts[i];
        const Columns near = all[some * group + threadIdx.x % group];
        each_column([&](int r, int v) {
            const Moments own = moments_of(sum.at[r].of[v], squares.at[r].of[v], static_cast<real>(count), origin.at[r].of[v]);
            sum.at[r].of[v] = squares.at[r].of[v] = 0;
            add_moments(sum.at[r].of[v], squares.at[r].of[v], near.at[r].of[v], own.mean, own.squares, static_cast<real>(count));
        });
        Columns mean = over_groups(sum, memory), rest = over_groups(squares, memory);
        if (threadIdx.x >= group || (!CONCAT && lane.head > 0)) return;
        each_column([&](int r, int v) {
            const Moments of_block = moments_of(mean.at[r].of[v], rest.at[r].of[v], static_cast<real>(total), near.at[r].of[v]);
            mean.at[r].of[v] = of_block.mean, rest.at[r].of[v] = of_block.squares;
        });
        store(lane, part, mean);
        store(lane, part + p.left_half, rest);
        if (lane.leads() && lane.head == 0) part[2 * p.left_half] = static_cast<real>(total);
        if (lane.leads() && lane.head == (CONCAT ? HEADS - 1 : 0))
            for (int column = columns_of_result; column < p.result_stride; column++) part[column] = part[p.left_half + column] = 0;
    }
};
#endif

// Computes the columns of one block of heads of an atom's result, and stores the softmax.
__device__ __forceinline__ Columns attend(const Attention& p, const Lane& lane, const Vectors& of, const Bonds& bonds, bool there) {
    const int atom = bonds.atom;
    const Columns x = load_row(lane, p, p.source, atom, there);
    const Columns target = V2 ? load_row(lane, p, p.target, atom, there) : Columns();
    const real of_target = V2 ? real(0) : product(of.att_target, x);
    WeightedSum sum;
    Columns rows = {};
    int others = 0;
    struct Loaded {
        Columns source, bond;
    };
    const auto load = [&](bool is_bond, int bond, int from) {
        return Loaded{load_row(lane, p, p.source, from, is_bond), Bonds::load_bond(lane, p, bond, is_bond)};
    };
    bonds.each_bond(p, load, [&](bool is_bond, int bond, int, const Loaded& loaded) {
        const Score it(p, of, loaded.source, target, of_target, loaded.bond);
        if (!is_bond) return;
        sum.raise(it.score);
        sum.add(it.score, kept(p, bond, lane.head, false), loaded.source);
        if (BONDS) add(rows, real(1), loaded.bond);
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
    SHARED_MEMORY(memory);
    const int blocks = CONCAT ? head_blocks : 1, part = blockIdx.x / blocks;
    wait_for_previous();
    const Lane first(CONCAT ? blockIdx.x % blocks : 0);
    const Vectors of_first(first, p);
#if LEAVES
    ColumnDistances distances;
#endif
    each_atom(p, part, gridDim.x / blocks, !CONCAT || first.there, [&](int atom, bool row, bool there, const Bonds& bonds) {
        Columns x = {};
#if CONCAT
        x = attend(p, first, of_first, bonds, there);
#else
#pragma unroll 1
        for (int block = 0; block < head_blocks; block++) {
            const Lane lane(block);
            const bool some = there && lane.there;
            Bonds of_head = bonds;
            if (!some) of_head.count = -1;
            add(x, real(1), attend(p, lane, Vectors(lane, p), of_head, some));
        }
        each_column([&](int r, int v) {
            real& sum = x.at[r].of[v];
#pragma unroll
            for (int mask = LANES; mask < group; mask *= 2) sum += shuffle_xor(sum, mask);
            sum /= HEADS;
        });
        if (first.head > 0) return;
#endif
        if (!row) return;
        if (there && p.bias != nullptr) add(x, real(1), load(first, p.bias));
        real* to = p.out + size_t(atom) * p.result_stride;
        store(first, to, x);
#if LEAVES
        if (there) distances.add(x);
#endif
        if (first.leads() && first.head == (CONCAT ? HEADS - 1 : 0))
            for (int column = columns_of_result; column < p.result_stride; column++) to[column] = 0;
    });
#if LEAVES
    distances.leave(p, first, p.left + size_t(part) * (2 * p.left_half + 4), memory);
#endif
}
