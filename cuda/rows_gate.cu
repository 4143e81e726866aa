// The average over an atom's neighbours with gates as weights, and the gradient of the gates: o = sum of s h_j / (sum of s + epsilon), where s
// is the sigmoid of a bond's gate t. Each thread has four columns of an atom and pulls along the bonds that point at it.
//
// The gates are rows of bonds (`bonds`), or are computed here from the rows of both atoms and of the bond (`source`, `target`, `bonds`) and
// written. `averaged` has the rows h.
//
// Macros: LEAVES (the moments of the gates that are written are left for the norm that reads them), ENDS (to the gradient of the gates is added
// `add`, taken back through `end`).
#include "rows_edges.cuh"
#include "rows_parts.cuh"
#define AGGR 0
#define BONDS 1
#include "gather.cuh"

constexpr double epsilon = 1e-6;  // molgcn.ops.layer_network.steps.GATE_EPSILON
constexpr int kept = 4;  // bonds whose weights and rows backward keeps in registers: all bonds of most atoms

struct Arriving {
    Quad averaged, source, bond;
};

// The sums of an atom's weights and of the weighted rows.
struct GateSums {
    Quad weighted, total;

    __device__ __forceinline__ GateSums() : total(constant(real(epsilon))) {}
    __device__ __forceinline__ void add(const Quad& weight, const Quad& row) {
        weighted = each([&](int e) { return multiply_add(weight.e[e], row.e[e], weighted.e[e]); });
        ::add(total, weight);
    }
    __device__ __forceinline__ Quad ratio() const {
        return each([&](int e) { return weighted.e[e] / total.e[e]; });
    }
};
__device__ __forceinline__ Quad weights_of(const Quad& gate) {
    return each([&](int e) { return sigmoid(gate.e[e]); });
}

extern "C" __global__ void __launch_bounds__(THREADS) rows_gate(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Team team(p);
    const int num_atoms = atoms_of(p), quad = team.quad;
    QuadDistances distances;
    Incoming bonds(p, p.code, team.idle ? p.num_atoms : team.first_row, num_atoms);
    wait_for_previous();
    const auto load_bond = [&](int source, int row) {
        return Arriving{load(p.averaged + offset_of(p, source, quad)), load_if(p, p.source, source, quad), load(p.bonds + offset_of(p, row, quad))};
    };
    each_atom(p, team, p.written, [&](int atom, bool there) {
        GateSums sums;
        if (there) {
            Arriving loaded[together];
            bonds.load_bonds(0, load_bond, loaded);
            const Quad target = load_if(p, p.target, atom, quad);
            int bond = bonds.begin;
            bonds.each_bond(p, p.code, loaded, load_bond, [&](const Arriving& it, int, int) {
                Quad gate = it.source;  // the order of rows_expand, which computes the gates again in backward
                add(gate, target), add(gate, it.bond);
                if (p.written != nullptr) store(p, p.written, bond, quad, gate);
                if (LEAVES) distances.add(gate);
                bond++;
                sums.add(weights_of(gate), it.averaged);
            });
        }
        bonds = Incoming(p, p.code, atom + team.step, num_atoms);
        store(p, p.out, atom, quad, sums.ratio());
    });
    if (LEAVES) leave_part<ColumnMoments>(p, team, distances, memory);
}

// With the gradient g of an atom's row o, the gradient of a bond's gate is s (1 - s) (h_j - o) g / (sum of s + epsilon). The last factor is the
// atom's share, from which rows_expand_grad computes the gradient of h.
extern "C" __global__ void __launch_bounds__(THREADS) rows_gate_grad(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    unsigned char* room = memory;
    const Team team(p);
    const int num_bonds = __ldg(p.rowptr + atoms_of(p)), quad = team.quad;
    LoadNorm loaded(p, p.end, team, room, true);
    wait_for_previous();
    const Norm norm = loaded.merged(p, team, num_bonds, room);
    const bool batch = p.end.moments != nullptr;
    each_atom(p, team, p.of_gates.out, [&](int atom, bool there) {
        Quad incoming;
        if (there) {
            const int begin = __ldg(p.rowptr + atom), end = __ldg(p.rowptr + atom + 1);
            const auto gate_of = [&](int bond) { return load(p.gates + offset_of(p, bond, quad)); };
            const auto row_of = [&](int bond) { return load(p.averaged + offset_of(p, __ldg(p.col + bond), quad)); };
            const auto given_of = [&](int bond) { return load_if(p, ENDS ? p.add : p.of_gates.add, bond, quad); };
            const Quad grad = load(p.grad + offset_of(p, atom, quad));
            Quad gate[kept], row[kept], given[kept];
            GateSums sums;
#pragma unroll
            for (int k = 0; k < kept; k++)
                if (begin + k < end) gate[k] = gate_of(begin + k), row[k] = row_of(begin + k), given[k] = given_of(begin + k);
#pragma unroll
            for (int k = 0; k < kept; k++)
                if (begin + k < end) sums.add(weights_of(gate[k]), row[k]);
            for (int bond = begin + kept; bond < end; bond++) sums.add(weights_of(gate_of(bond)), row_of(bond));
            const Quad ratio = sums.ratio(), share = each([&](int e) { return grad.e[e] / sums.total.e[e]; });
            store(p, p.shares, atom, quad, share);
            const auto put = [&](int bond, const Quad& t, const Quad& h, Quad more) {
                const Quad s = weights_of(t);
                if (ENDS) more = norm.grad(t, activated_grad(p, p.end, bond, quad, norm(t), more), batch);
                Ending ending;
                ending.added = more, ending.value = load_if(p, p.of_gates.value, bond, quad);
                const Quad x = each([&](int e) { return s.e[e] * (real(1) - s.e[e]) * (h.e[e] - ratio.e[e]) * share.e[e]; });
                add(incoming, ending.write(p, p.of_gates, bond, quad, x));
            };
            if (p.of_gates.out != nullptr) {
#pragma unroll
                for (int k = 0; k < kept; k++)
                    if (begin + k < end) put(begin + k, gate[k], row[k], given[k]);
                for (int bond = begin + kept; bond < end; bond++) put(bond, gate_of(bond), row_of(bond), given_of(bond));
            }
        }
        write_there(p, p.of_target, atom, quad, incoming, there);
    });
}
