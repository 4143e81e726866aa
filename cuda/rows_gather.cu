// What comes in along the bonds: o = (1 + eps) h + aggr(w relu(h_j + e)) + b. A thread has four columns of an atom and pulls.
#include "rows_gather.cuh"

struct Message {
    Quad value;
    real weight;
};

extern "C" __global__ void __launch_bounds__(256) rows_gather(const __grid_constant__ Parameters p) {
    const Tile tile(p);
    const int num_atoms = atoms_of(p), quad = tile.quad, step = tile.step();
    int atom = tile.idle ? p.num_atoms : tile.first_row();
    Incoming next(p, p.code, atom, atom < num_atoms);
    wait_for_previous();
    for (; atom < p.num_atoms; atom += step) {
        const Incoming bonds = next;
        next = Incoming(p, p.code, atom + step, atom + step < num_atoms);
        if (atom >= num_atoms) {
            store(p, p.out, atom, quad, constant(real(0)));
            continue;
        }
        const real own_scale = gcn ? p.scale[atom] : real(1);
        Quad sum;
        bool none = true;
        bonds.each_bond(
            p, p.code,
            [&](int source, int row) {
                Message it = {load(p.source + place(p, source, quad)), gcn ? own_scale * p.scale[source] : real(1)};
                if (BONDS) {
                    add(it.value, load(p.bonds + place(p, row, quad)));
                    it.value = each([&](int e) { return it.value.e[e] < real(0) ? real(0) : it.value.e[e]; });
                }
                return it;
            },
            [&](const Message& it, int source, int) {
                if (AGGR == AGGR_GCN_LOOPS && source == atom) return;
                if (AGGR == AGGR_MAX) {
                    sum = none ? it.value : each([&](int e) { return it.value.e[e] > sum.e[e] || it.value.e[e] != it.value.e[e] ? it.value.e[e] : sum.e[e]; });
                    none = false;
                } else {
                    add(sum, it.weight, it.value);
                }
            });
        if (AGGR == AGGR_MEAN && bonds.end > bonds.begin) sum = each([&](int e) { return sum.e[e] / static_cast<real>(bonds.end - bonds.begin); });
        const real own = AGGR == AGGR_GCN_LOOPS ? own_scale * own_scale : p.eps != nullptr ? real(1) + *p.eps : real(0);
        if (AGGR == AGGR_GCN_LOOPS || p.eps != nullptr) add(sum, own, load(p.source + place(p, atom, quad)));
        if (p.bias != nullptr) add(sum, load_vector(p, p.bias, quad));
        store(p, p.out, atom, quad, sum);
    }
}
