// Mean, sum or max of each molecule's rows, and the gradient. A block has a chunk of a molecule's quads, and its
// teams take the molecule's atoms in turn.
//
// Macro: POOL.
#include "rows.cuh"

#define POOL_MEAN 0
#define POOL_SUM 1
#define POOL_MAX 2

// Returns the larger of two numbers, or NaN if one of them is NaN.
__device__ __forceinline__ Quad larger(const Quad& x, const Quad& y) {
    return each([&](int e) { return x.e[e] > y.e[e] || x.e[e] != x.e[e] ? x.e[e] : y.e[e]; });
}
__device__ __forceinline__ void put(Quad& all, const Quad& x) {
    if (POOL == POOL_MAX)
        all = larger(x, all);
    else
        add(all, x);
}
// Combines the teams' quads, at every team.
template <class Put>
__device__ __forceinline__ Quad over_teams(const Team& team, const Parameters& p, Quad* shared, const Quad& mine, Put put) {
    __syncthreads();
    if (team.index < team.per_block) shared[team.index * p.lanes + team.lane] = mine;
    __syncthreads();
    Quad all = shared[team.lane];
    for (int other = 1; other < team.per_block; other++) put(all, shared[other * p.lanes + team.lane]);
    return all;
}
__device__ __forceinline__ Quad pooled_by(const Parameters& p, const Team& team, int begin, int end, Quad* shared) {
    Quad mine = constant(POOL == POOL_MAX && end > begin ? real(number(0xff800000u)) : real(0));
    if (!team.idle)
#pragma unroll 4
        for (int row = begin + team.index; row < end; row += team.per_block) put(mine, load(p.source + offset_of(p, row, team.quad)));
    return over_teams(team, p, shared, mine, [](Quad& all, const Quad& x) { put(all, x); });
}

extern "C" __global__ void __launch_bounds__(256) rows_pool(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Team team(p);
    const int graph = team.part, begin = __ldg(p.ptr + graph), end = __ldg(p.ptr + graph + 1);
    wait_for_previous();
    Quad all = pooled_by(p, team, begin, end, reinterpret_cast<Quad*>(memory));
    if (team.idle || team.index > 0) return;
    if (POOL == POOL_MEAN && end > begin) all = each([&](int e) { return all.e[e] / static_cast<real>(end - begin); });
    store_vector(p, p.pooled + size_t(graph) * p.width, team.quad, all);
}

// Writes the gradient of the rows. Blocks beyond those of the molecules write zeros to rows of padding.
extern "C" __global__ void __launch_bounds__(256) rows_pool_grad(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    Quad* shared = reinterpret_cast<Quad*>(memory);
    const Team team(p);
    const int graph = team.part, quad = team.quad;
    if (graph >= p.num_graphs) {
        wait_for_previous();
        const int first = atoms_of(p) + (graph - p.num_graphs) * team.per_block + team.index, step = (team.parts - p.num_graphs) * team.per_block;
        for (int row = team.idle ? p.num_atoms : first; row < p.num_atoms; row += step) store(p, p.of_source.out, row, quad, constant(real(0)));
        return;
    }
    const int begin = __ldg(p.ptr + graph), end = __ldg(p.ptr + graph + 1);
    wait_for_previous();
    if (end == begin) return;
    Quad largest, count;
    if (POOL == POOL_MAX) {
        largest = pooled_by(p, team, begin, end, shared);
        for (int row = begin + team.index; !team.idle && row < end; row += team.per_block) {
            const Quad x = load(p.source + offset_of(p, row, quad));
            add(count, each([&](int e) { return real(x.e[e] == largest.e[e]); }));
        }
        count = over_teams(team, p, shared, count, [](Quad& all, const Quad& x) { add(all, x); });
    }
    if (team.idle) return;
    Quad grad = load_vector(p, p.grad + size_t(graph) * p.width, quad);
    if (POOL == POOL_MEAN) grad = each([&](int e) { return grad.e[e] / static_cast<real>(end - begin); });
    if (POOL == POOL_MAX) grad = each([&](int e) { return grad.e[e] / count.e[e]; });
    for (int row = begin + team.index; row < end; row += team.per_block) {
        Quad mine = grad;
        if (POOL == POOL_MAX) {
            const Quad x = load(p.source + offset_of(p, row, quad));
            mine = each([&](int e) { return x.e[e] == largest.e[e] ? grad.e[e] : real(0); });
        }
        write(p, p.of_source, row, quad, mine);
    }
}
