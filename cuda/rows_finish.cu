// The end of a layer that has no norm or whose norm's statistics are known: o = dropout(relu(norm(x))) + a. For the others rows_moments
// computes the statistics of the batch first.
#include "rows_merge.cuh"
#include "rows_moments.cuh"
#include "rows_norm.cuh"

extern "C" __global__ void __launch_bounds__(1024) rows_moments(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    int* flag = reinterpret_cast<int*>(memory);
    Moments* all = reinterpret_cast<Moments*>(memory + 16);  // [teams][4 lanes]
    const Team team(p);
    const int num_atoms = atoms_of(p), columns = 4 * p.lanes;
    wait_for_previous();
    Distances distances;
    const int first = team.first_row();
    if (!team.idle && first < num_atoms) {
        distances.origin = load(p.source + offset_of(p, first, team.quad));
#pragma unroll 4
        for (int row = first; row < num_atoms; row += team.step()) distances.add(load(p.source + offset_of(p, row, team.quad)));
    }
    if (team.index < team.per_block)
#pragma unroll
        for (int e = 0; e < 4; e++) all[team.index * columns + 4 * team.lane + e] = distances.moments(e);
    merge_blocks(p.merge, team.chunk, team.part, team.parts, columns, all, team.per_block, flag, [&](int i, const Moments& it) {
        const int column = team.chunk * columns + i;
        if (column < p.width) keep_moments(p, column, it, Running(p, column));
    });
}

extern "C" __global__ void __launch_bounds__(256) rows_finish(const __grid_constant__ Parameters p) {
    const Team team(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    if (team.idle) return;
    const Affine norm(p, team.quad);
#pragma unroll 2
    for (int row = team.first_row(); row < p.num_atoms; row += team.step()) {
        if (row >= num_atoms) {
            store(p, p.out, row, team.quad, constant(real(0)));
            continue;
        }
        const Quad x = load(p.source + offset_of(p, row, team.quad)), residual = load_if(p, p.add, row, team.quad);
        finish(p, norm, row, team.quad, x, residual);
    }
}
