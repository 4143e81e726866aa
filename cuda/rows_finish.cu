// The end of a layer: o = dropout(relu(norm(x))) + a. Also the moments of rows that a norm reads.
//
// Macro: LEAVES (the moments of o for the next norm are left).
#include "rows_parts.cuh"

extern "C" __global__ void __launch_bounds__(256) rows_moments(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    unsigned char* room = memory;
    const Tile tile(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    Distances distances;
    if (!tile.idle)
#pragma unroll 4
        for (int row = tile.first_row(); row < num_atoms; row += tile.step()) distances.add(load(p.source + place(p, row, tile.quad)));
    leave_part<ColumnMoments>(p, tile, distances, room);
}

extern "C" __global__ void __launch_bounds__(256) rows_finish(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    unsigned char* room = memory;
    const Tile tile(p);
    const int num_atoms = atoms_of(p);
    LoadNorm loaded(p, p.end, tile, room, false);
    wait_for_previous();
    const Norm norm = loaded.merged(p, tile, num_atoms, room);
    Distances distances;
    if (!tile.idle)
#pragma unroll 2
        for (int row = tile.first_row(); row < p.num_atoms; row += tile.step()) {
            if (row >= num_atoms) {
                store(p, p.out, row, tile.quad, constant(real(0)));
                continue;
            }
            const Quad x = load(p.source + place(p, row, tile.quad)), residual = load_if(p, p.add, row, tile.quad);
            Quad y = activated(p, p.end, row, tile.quad, norm(x));
            add(y, residual);
            store(p, p.out, row, tile.quad, y);
            if (LEAVES) distances.add(y);
        }
    if (LEAVES) leave_part<ColumnMoments>(p, tile, distances, room);
}
