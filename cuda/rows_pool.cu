// Mean, sum or max of each molecule's rows, and the gradient. A block has a chunk of a molecule's quads, and its
// teams take the molecule's atoms in turn.
//
// Macros: POOL, ENDS (the end of the last layer is applied to rows as they are read), LEAVES (in backward the sums for the norm of that end
// are left).
#include "kinds.cuh"
#include "rows_parts.cuh"

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
template <class Load>
__device__ __forceinline__ Quad pooled_by(const Parameters& p, const Team& team, int begin, int end, Quad* shared, const Load& load_row) {
    Quad mine = constant(POOL == POOL_MAX && end > begin ? real(number(0xff800000u)) : real(0));
    if (!team.idle)
#pragma unroll 4
        for (int row = begin + team.index; row < end; row += team.per_block) put(mine, load_row(row));
    return over_teams(team, p, shared, mine, [](Quad& all, const Quad& x) { put(all, x); });
}

extern "C" __global__ void __launch_bounds__(256) rows_pool(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    unsigned char* room = memory;
    const Team team(p);
    const int quad = team.quad;
#if ENDS
    LoadNorm loaded(p, p.end, team, room, false);
    wait_for_previous();
    const Norm norm = loaded.merged(p, team, atoms_of(p), room);
#else
    wait_for_previous();
    const Norm norm;
#endif
    const auto load_row = [&](int row) { return load_source<ENDS>(p, norm, row, quad); };
    for (int graph = team.part; graph < p.num_graphs; graph += team.parts) {
        const int begin = __ldg(p.ptr + graph), end = __ldg(p.ptr + graph + 1);
        Quad all = pooled_by(p, team, begin, end, reinterpret_cast<Quad*>(room), load_row);
        if (team.idle || team.index > 0) continue;
        if (POOL == POOL_MEAN && end > begin) all = each([&](int e) { return all.e[e] / static_cast<real>(end - begin); });
        store_vector(p, p.pooled + size_t(graph) * p.pooled_stride, quad, all);
    }
}

// Writes the gradient of the rows, and zeros to rows of padding.
extern "C" __global__ void __launch_bounds__(256) rows_pool_grad(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    unsigned char* room = memory;
    const Team team(p);
    const int num_atoms = atoms_of(p), quad = team.quad;
    GradSums left;
    if (LEAVES) left.norm = LoadNorm(p, p.next, team, room, false).merged(p, team, num_atoms, room);
    Quad* shared = reinterpret_cast<Quad*>(room);
    wait_for_previous();
    for (int graph = team.part; graph < p.num_graphs; graph += team.parts) {
        const int begin = __ldg(p.ptr + graph), end = __ldg(p.ptr + graph + 1);
        Quad largest, count;
        if (POOL == POOL_MAX) {
            const auto load_row = [&](int row) { return load(p.source + offset_of(p, row, quad)); };
            largest = pooled_by(p, team, begin, end, shared, load_row);
            for (int row = begin + team.index; !team.idle && row < end; row += team.per_block) {
                const Quad x = load_row(row);
                add(count, each([&](int e) { return real(x.e[e] == largest.e[e]); }));
            }
            count = over_teams(team, p, shared, count, [](Quad& all, const Quad& x) { add(all, x); });
        }
        if (team.idle) continue;
        Quad grad = load_vector(p, p.grad + size_t(graph) * p.pooled_stride, quad);
        if (POOL == POOL_MEAN) grad = each([&](int e) { return grad.e[e] / static_cast<real>(end - begin); });
        if (POOL == POOL_MAX) grad = each([&](int e) { return grad.e[e] / count.e[e]; });
#pragma unroll 2
        for (int row = begin + team.index; row < end; row += team.per_block) {
            Quad mine = grad;
            if (POOL == POOL_MAX) {
                const Quad x = load(p.source + offset_of(p, row, quad));
                mine = each([&](int e) { return x.e[e] == largest.e[e] ? grad.e[e] : real(0); });
            }
            mine = Ending(p, p.of_source, row, quad).write(p, p.of_source, row, quad, mine);
            if (LEAVES) left.add(p, row, quad, mine, load(p.next_source + offset_of(p, row, quad)));
        }
    }
    for (int row = num_atoms + team.part * team.per_block + team.index; !team.idle && row < p.num_atoms; row += team.parts * team.per_block)
        store(p, p.of_source.out, row, quad, constant(real(0)));
    if (LEAVES) leave_part<NormSums>(p, team, left, room);
}
