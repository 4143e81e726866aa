// The end of a layer: o = dropout(act(norm(x))) + a. Also the moments of rows that a norm reads.
//
// Macro: LEAVES (the moments of o for the next norm are left).
#include "rows_parts.cuh"

extern "C" __global__ void __launch_bounds__(256) rows_moments(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Team team(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    QuadDistances distances;
    if (!team.idle)
#pragma unroll 4
        for (int row = team.first_row; is_row(p, row); row += team.step)
            if (row < num_atoms) distances.add(load(p.source + offset_of(p, row, team.quad)));
    leave_part<ColumnMoments>(p, team, distances, memory);
}

extern "C" __global__ void __launch_bounds__(256, DOUBLE ? 2 : 3) rows_finish(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    unsigned char* room = memory;
    const Team team(p);
    const int num_atoms = atoms_of(p);
    LoadNorm loaded(p, p.end, team, room, false);
    wait_for_previous();
    // Rows are loaded one ahead, since loads after a store would wait for it.
    const auto ask = [&](int row) { return !team.idle && is_row(p, row) && row < num_atoms ? Source(p, row, team.quad) : Source(); };
    Source next = ask(team.first_row);
    const Norm norm = loaded.merged(p, team, num_atoms, room);
    QuadDistances distances;
    if (!team.idle)
        for (int row = team.first_row; is_row(p, row); row += team.step) {
            const Source now = next;
            next = ask(row + team.step);
            if (row >= num_atoms) {
                store(p, p.out, row, team.quad, constant(real(0)));
                continue;
            }
            const Quad y = now.ended(p, norm, row, team.quad);
            store(p, p.out, row, team.quad, y);
            if (LEAVES) distances.add(y);
        }
    if (LEAVES) leave_part<ColumnMoments>(p, team, distances, room);
}
