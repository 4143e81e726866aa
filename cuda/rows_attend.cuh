// What forward and backward of attention on molecules share; see Attend in molgcn/ops/layer_network/steps.py.
//
// A group of lanes has GROUP_HEADS heads of an atom (row_walk.cuh). The atom's entries are the bonds that point at it from other atoms, in
// order, and then its own bond, whose row is the mean of theirs. The groups of a warp take as many steps as the longest of them.
//
// Macros besides those of row_walk.cuh:
//   V2       scores are att . leaky(source + target + bond), as in GATv2; else they are leaky(att . source + att_target . source + att_bonds .
//            bond), as in GAT
//   BONDS    bonds have rows
//   CONCAT   the heads stand side by side; else their mean is computed
//   DROPPED  weights are dropped
//   TABLE    the gradient of a table of distinct bonds is wanted; a block has `codes` of its rows
#pragma once
#include "attend.cuh"
#include "moments.cuh"

#include "layer_end_structs.h"    // molgcn/ops/layer_network/layer_ends_cuda.py
#include "rows_structs.h"         // molgcn/ops/layer_network/rows_launches.py
#include "rows_attend_structs.h"  // molgcn/ops/layer_network/rows_attend_cuda.py

constexpr int columns_of_result = CONCAT ? width : CHANNELS;
constexpr int resident = DOUBLE ? 1 : REPEATS * VECTOR > 8 ? 2 : 3;  // blocks of a multiprocessor that have registers

__device__ __forceinline__ real slope(const Attention& p, real x) { return slope_at(x, real(p.negative_slope)); }
__device__ __forceinline__ int atoms_of(const Attention& p) { return __ldg(p.ptr + p.num_graphs); }

// Returns dropout's factor of an entry: of a bond, or of an atom's own bond.
__device__ __forceinline__ real kept(const Attention& p, int row, int head, bool own) {
#if DROPPED
    return factor_of(row, head, p.site, own, *p.seed, p.threshold, real(p.kept_scale));
#else
    return 1;
#endif
}

__device__ __forceinline__ void add(Columns& sum, real factor, const Columns& x) {
    each_column([&](int r, int v) { sum.at[r].of[v] += factor * x.at[r].of[v]; });
}
// Returns the product of a head's columns, the same in each of its lanes.
__device__ __forceinline__ real product(const Columns& x, const Columns& y) {
    real sum = 0;
    each_column([&](int r, int v) { sum += x.at[r].of[v] * y.at[r].of[v]; });
    return sum_over_head(sum);
}

__device__ __forceinline__ Columns load_row(const Lane& lane, const Attention& p, const real* rows, int row, bool there) {
    return load(lane, rows + size_t(there ? row : 0) * p.stride, there);
}
// Stores a head's columns of a row, and zeros between the last column and the stride.
__device__ __forceinline__ void store_row(const Lane& lane, const Attention& p, real* row, const Columns& x) {
    store(lane, row, x);
    if (lane.leads() && lane.head == HEADS - 1)
        for (int column = width; column < p.stride; column++) row[column] = 0;
}
// Returns a head's columns of the gradient of an atom's result.
__device__ __forceinline__ Columns load_grad(const Lane& lane, const Attention& p, int atom, bool there) {
    const real* row = p.grad + size_t(there ? atom : 0) * p.result_stride;
    if (CONCAT) return load(lane, row, there);
    Columns x = load(lane, row - lane.head * CHANNELS, there);
    each_column([&](int r, int v) { x.at[r].of[v] /= HEADS; });
    return x;
}
// Ends a gradient as molgcn.ops.layer_network.backward.Produced describes it, and stores it.
__device__ __forceinline__ void write(const Lane& lane, const Attention& p, const Gradient& it, int row, Columns x) {
    if (it.out == nullptr) return;
    const size_t at = size_t(row) * p.stride;
    if (it.add != nullptr) add(x, real(1), load(lane, it.add + at));
    if (it.value != nullptr) {
        const Columns value = load(lane, it.value + at);
        each_column([&](int r, int v) { x.at[r].of[v] = value.at[r].of[v] > 0 ? x.at[r].of[v] * real(it.scale) : real(0); });
    }
    store_row(lane, p, it.out + at, x);
}

// The vectors of a head's scores.
struct Vectors {
    Columns att, att_target, att_bonds;

    __device__ __forceinline__ Vectors(const Lane& lane, const Attention& p) : att(load(lane, p.att)), att_target(), att_bonds() {
        if (!V2) att_target = load(lane, p.att_target);
        if (!V2 && BONDS) att_bonds = load(lane, p.att_bonds);
    }
};

// An atom's bonds.
struct Bonds {
    int atom, begin, count;  // count: -1 where there is no atom

    __device__ __forceinline__ Bonds(const Attention& p, int atom, bool there) : atom(atom), begin(0), count(-1) {
        if (there) begin = __ldg(p.rowptr + atom), count = __ldg(p.rowptr + atom + 1) - begin;
    }
    // Returns the row of a bond.
    static __device__ __forceinline__ int row_of(const Attention& p, int bond) { return p.code == nullptr ? bond : __ldg(p.code + bond); }

    // Calls visit(there, bond, neighbour, load(there, bond, neighbour)) for the bonds with other atoms, as often in all lanes of a warp. A lane
    // of few columns loads for the next bond before it visits one.
    template <class Load, class Visit>
    __device__ __forceinline__ void each_bond(const Attention& p, const Load& load, const Visit& visit) const {
        constexpr bool ahead = REPEATS * VECTOR <= 8;
        const int steps = largest(count);
        int from = count > 0 ? __ldg(p.col + begin) : -1, after = count > 1 ? __ldg(p.col + begin + 1) : -1;
        auto next = load(ahead && count > 0 && from != atom, begin, from);
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            const int bond = begin + step, other = from;
            const bool there = step < count && other != atom;
            from = after;
            after = step + 2 < count ? __ldg(p.col + bond + 2) : -1;
            const auto now = ahead ? next : load(there, bond, other);
            if (ahead) next = load(step + 1 < count && from != atom, bond + 1, from);
            visit(there, bond, other, now);
        }
    }
    // Returns the mean of the bonds' rows, and their number.
    __device__ __forceinline__ Columns mean(const Lane& lane, const Attention& p, int& others) const {
        Columns sum = {};
        others = 0;
        const auto load = [&](bool there, int bond, int) { return load_bond(lane, p, bond, there); };
        each_bond(p, load, [&](bool there, int, int, const Columns& row) {
            add(sum, real(1), row);
            others += there;
        });
        return divided(sum, others);
    }
    // Returns the row of a bond, or zeros where bonds have none.
    static __device__ __forceinline__ Columns load_bond(const Lane& lane, const Attention& p, int bond, bool there) {
        return BONDS ? load_row(lane, p, p.bonds, there ? row_of(p, bond) : 0, there) : Columns();
    }
    static __device__ __forceinline__ Columns divided(Columns sum, int others) {
        const real share = real(1) / (others > 0 ? others : 1);
        each_column([&](int r, int v) { sum.at[r].of[v] *= share; });
        return sum;
    }
};

// Calls visit(atom, whether it is a row, whether it is an atom and `some`, its bonds) for the rows of a group, as often in all lanes of a warp.
// What the next row needs is on its way to the cache while this one is visited.
template <class Visit>
__device__ __forceinline__ void each_atom(const Attention& p, int part, int parts, bool some, const Visit& visit) {
    const int num_atoms = atoms_of(p), step = parts * groups, lane = threadIdx.x % group;
    const int here = part * groups + threadIdx.x / group, first_of_warp = here - threadIdx.x % 32 / group;
    const auto atom_at = [&](int begin) { return p.backwards ? p.num_atoms - 1 - begin - here : begin + here; };
    const auto is_atom = [&](int atom) { return atom >= 0 && atom < num_atoms; };
    const auto prefetch_row = [&](const real* rows, int stride, int row) {
        for (int column = 128 / sizeof(real) * lane; column < stride; column += 128 / sizeof(real) * group) prefetch(rows + size_t(row) * stride + column);
    };
    Bonds next(p, atom_at(0), some && is_atom(atom_at(0)));
    for (int begin = 0; begin + first_of_warp < p.num_atoms; begin += step) {
        const int atom = atom_at(begin), following = atom_at(begin + step);
        const Bonds bonds = next;
        next = Bonds(p, following, some && is_atom(following));
        if (is_atom(following)) {
            prefetch_row(p.source, p.stride, following);
            if (V2) prefetch_row(p.target, p.stride, following);
            if (p.grad != nullptr) prefetch_row(p.grad, p.result_stride, following);
        }
        visit(atom, atom >= 0 && atom < p.num_atoms, some && is_atom(atom), bonds);
    }
}

// What goes into the leaky relu of an entry, and its score. `target` is used in GATv2, and `known` is what is known of GAT's score: att_target .
// source, and perhaps att . source.
struct Score {
    Columns pre;
    real of_pre, score;

    __device__ __forceinline__ Score(const Attention& p, const Vectors& of, const Columns& x, const Columns& target, real known, const Columns& bond,
                                     bool source_is_known = false)
        : pre(x), of_pre(0), score(0) {
#if V2
        each_column([&](int r, int v) {
            real& sum = pre.at[r].of[v];
            sum += target.at[r].of[v];
            if (BONDS) sum += bond.at[r].of[v];
            score += of.att.at[r].of[v] * sum * slope(p, sum);
        });
        score = sum_over_head(score);
#else
        each_column([&](int r, int v) {
            if (!source_is_known) of_pre += of.att.at[r].of[v] * x.at[r].of[v];
            if (BONDS) of_pre += of.att_bonds.at[r].of[v] * bond.at[r].of[v];
        });
        if (BONDS || !source_is_known) of_pre = sum_over_head(of_pre);
        of_pre += known;
        score = of_pre * slope(p, of_pre);
#endif
    }
};

// An entry in backward: what its source gets of the gradient of the result, and the gradient of its score.
struct Entry : Score {
    real weight, used, of_score;

    __device__ __forceinline__ Entry(const Attention& p, const Vectors& of, const Node& node, const Columns& x, const Columns& target,
                                     const Columns& bond, const Columns& grad, real factor, bool there, bool source_is_known = false)
        : Score(p, of, x, target, node.score, bond, source_is_known) {
        weight = there ? exponential(score - node.largest) * node.scale : real(0);
        used = weight * factor;
        const real along = factor * product(grad, x);
        of_score = there ? weight * (along - node.mean) : real(0);
    }
    // Returns the gradient of what the leaky relu takes in GAT.
    __device__ __forceinline__ real through_leaky(const Attention& p) const { return of_score * slope(p, of_pre); }
    // Returns the gradient of the bond's row, which in GATv2 is also that of the source and of the target.
    __device__ __forceinline__ Columns of_columns(const Attention& p, const Vectors& of) const {
        Columns x = V2 ? of.att : of.att_bonds;
        const real factor = V2 ? of_score : through_leaky(p);
        each_column([&](int r, int v) { x.at[r].of[v] *= factor * (V2 ? slope(p, pre.at[r].of[v]) : real(1)); });
        return x;
    }
};

// Returns the sum of columns over the groups of a block, at the first group. `memory` has room for the columns of all threads.
__device__ __forceinline__ Columns over_groups(const Columns& mine, unsigned char* memory) {
    Columns *all = reinterpret_cast<Columns*>(memory), sum = mine;
    __syncthreads();
    all[threadIdx.x] = mine;
    __syncthreads();
    for (int other = 1; threadIdx.x < group && other < groups; other++) add(sum, real(1), all[other * group + threadIdx.x]);
    return sum;
}
// Merges the groups' sums of a vector's gradient, and stores them in `part`.
__device__ __forceinline__ void leave_vector(const Lane& lane, const Columns& mine, real* part, unsigned char* memory) {
    const Columns sum = over_groups(mine, memory);
    if (threadIdx.x < group) store(lane, part, sum);
}
