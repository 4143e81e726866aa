// The sum along an atom's bonds: o = (1 + eps) h + aggr(w relu(h_j + e)) + b. Each thread has four columns of an atom and pulls.
//
// Macros: ENDS (the end of the layer before is applied to rows as they are read), LEAVES (the moments of o for the next norm are left).
#include "rows.cuh"
#include "gather.cuh"
#include "rows_parts.cuh"

extern "C" __global__ void __launch_bounds__(256, DOUBLE || ENDS ? 3 : 4) rows_gather(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    unsigned char* room = memory;
    const Team team(p);
    const int num_atoms = atoms_of(p), quad = team.quad, step = team.step;
    int atom = team.idle ? p.num_atoms : team.first_row;
    Incoming bonds(p, p.code, atom, num_atoms);
#if ENDS
    LoadNorm loaded(p, p.end, team, room, false);
    wait_for_previous();
    const Norm norm = loaded.merged(p, team, num_atoms, room);
#else
    wait_for_previous();
    const Norm norm;
#endif
    const bool counts = AGGR == AGGR_GCN_LOOPS || p.eps != nullptr;  // the atom itself counts
    QuadDistances distances;
    const auto load_row = [&](int row) { return load_source<ENDS>(p, norm, row, quad); };
    const auto load_message = [&](int source, int row) {
        return Message{load_row(source), BONDS ? load(p.bonds + offset_of(p, row, quad)) : Quad(), gcn ? p.scale[source] : real(1)};
    };
    for (; is_row(p, atom); atom += step) {
        if (atom >= num_atoms) {
            store(p, p.out, atom, quad, constant(real(0)));
            if (ENDS && p.written != nullptr) store(p, p.written, atom, quad, constant(real(0)));
            bonds = Incoming(p, p.code, atom + step, num_atoms);  // from the last row on, padding comes first
            continue;
        }
        Message loaded[together];
        bonds.load_bonds(0, load_message, loaded);
        const bool writes = ENDS && p.written != nullptr;
        const Quad h = counts || writes ? load_row(atom) : Quad();
        if (writes) store(p, p.written, atom, quad, h);
        const real scale = gcn ? p.scale[atom] : real(1);
        const Incoming next(p, p.code, atom + step, num_atoms);  // loaded while this atom's rows are under way
        Quad sum = sum_of_messages(p, p.code, bonds, loaded, load_message, atom, scale);
        if (counts) add(sum, AGGR == AGGR_GCN_LOOPS ? scale * scale : real(1) + *p.eps, h);
        if (p.bias != nullptr) add(sum, load_vector(p, p.bias, quad));
        store(p, p.out, atom, quad, sum);
        if (LEAVES) distances.add(sum);
        bonds = next;
    }
    if (LEAVES) leave_part<ColumnMoments>(p, team, distances, room);
}
