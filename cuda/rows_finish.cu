// The end of a layer that has no norm or whose norm's statistics are known: o = dropout(relu(norm(x))) + a. Also the statistics of a batch.
#include "rows_merge.cuh"
#include "rows_moments.cuh"
#include "rows_norm.cuh"

extern "C" __global__ void __launch_bounds__(1024) rows_moments(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    int* flag = reinterpret_cast<int*>(memory);
    Moments* all = reinterpret_cast<Moments*>(memory + 16);  // [teams][4 lanes]
    const Tile tile(p);
    const int num_atoms = atoms_of(p), columns = 4 * p.lanes;
    wait_for_previous();
    Distances distances;
    const int first = tile.first_row();
    if (!tile.idle && first < num_atoms) {
        distances.origin = load(p.source + offset_of(p, first, tile.quad));
#pragma unroll 4
        for (int row = first; row < num_atoms; row += tile.step()) distances.add(load(p.source + offset_of(p, row, tile.quad)));
    }
    if (tile.team < tile.teams)
#pragma unroll
        for (int e = 0; e < 4; e++) all[tile.team * columns + 4 * tile.lane + e] = distances.moments(e);
    merge_blocks(p.merge, tile.chunk, tile.part, tile.parts, columns, all, tile.teams, flag, [&](int i, const Moments& it) {
        const int column = tile.chunk * columns + i;
        if (column < p.width) keep_moments(p, column, it, Running(p, column));
    });
}

extern "C" __global__ void __launch_bounds__(256) rows_finish(const __grid_constant__ Parameters p) {
    const Tile tile(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    if (tile.idle) return;
    const Affine norm(p, tile.quad);
#pragma unroll 2
    for (int row = tile.first_row(); row < p.num_atoms; row += tile.step()) {
        if (row >= num_atoms) {
            store(p, p.out, row, tile.quad, constant(real(0)));
            continue;
        }
        const Quad x = load(p.source + offset_of(p, row, tile.quad)), residual = load_if(p, p.add, row, tile.quad);
        finish(p, norm, row, tile.quad, x, residual);
    }
}
