// An atom's directed bonds, in kernels in which each thread has four columns and goes through the bonds that point at an atom.
#pragma once
#include "rows.cuh"

// Calls visit(bond) for the bonds that point at an atom.
template <class Visit>
__device__ __forceinline__ void each_bond(const Parameters& p, int atom, Visit visit) {
    const int end = __ldg(p.rowptr + atom + 1);
    for (int bond = __ldg(p.rowptr + atom); bond < end; bond++) visit(bond);
}
// Calls ask(i, bond) for up to `few` bonds that point at an atom, then use(i, bond) for these, and so on: their rows are under way together.
constexpr int few = 4;
template <int few = ::few, class Ask, class Use>
__device__ __forceinline__ void each_few_bonds(const Parameters& p, int atom, Ask ask, Use use) {
    const int end = __ldg(p.rowptr + atom + 1);
    for (int first = __ldg(p.rowptr + atom); first < end; first += few) {
#pragma unroll
        for (int i = 0; i < few; i++)
            if (first + i < end) ask(i, first + i);
#pragma unroll
        for (int i = 0; i < few; i++)
            if (first + i < end) use(i, first + i);
    }
}
// Calls visit(atom) for a team's atoms. Sets the rows of bonds of padding to zero in `rows`, where it is not null.
template <class Visit>
__device__ __forceinline__ void each_atom(const Parameters& p, const Team& team, real* rows, Visit visit) {
    const int num_atoms = atoms_of(p), num_bonds = __ldg(p.rowptr + num_atoms);
    if (team.idle) return;
    for (int atom = team.first_row; is_row(p, atom); atom += team.step) {
        for (int bond = num_bonds + atom; rows != nullptr && bond < p.num_edges; bond += p.num_atoms)
            store(p, rows, bond, team.quad, constant(real(0)));
        visit(atom, atom < num_atoms);
    }
}
// Writes a gradient of an atom, where it is wanted, and zeros to rows of padding.
__device__ __forceinline__ void write_there(const Parameters& p, const Gradient& it, int atom, int quad, const Quad& x, bool there) {
    if (it.out == nullptr) return;
    if (there)
        write(p, it, atom, quad, x);
    else
        store(p, it.out, atom, quad, constant(real(0)));
}
