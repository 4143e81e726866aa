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

constexpr double epsilon = 1e-6;  // molgcn.ops.layer_network.steps.GATE_EPSILON
constexpr int together = 2;  // bonds whose rows are under way together: more take registers of which three blocks have too few

// Where an atom's bonds lead, two at a time. The first two are read before the previous kernel has written their rows.
struct Incoming {
    int begin = 0, end = 0, source[together];

    __device__ __forceinline__ Incoming(const Parameters& p, int atom, int num_atoms) {
        if (!is_row(p, atom)) return;  // does not wait for num_atoms: all rows have a number of bonds, those of padding 0
        begin = __ldg(p.rowptr + atom), end = __ldg(p.rowptr + atom + 1);
        if (atom >= num_atoms) end = begin;
        ask(p, begin);
    }
    __device__ __forceinline__ void ask(const Parameters& p, int first) {
        each_of(first, end, [&](int k, int bond) { source[k] = __ldg(p.col + bond); });
    }
    // Calls visit(k, bond) for up to two bonds from number `first` on.
    template <class Visit>
    static __device__ __forceinline__ void each_of(int first, int end, Visit visit) {
#pragma unroll
        for (int k = 0; k < together; k++)
            if (first + k < end) visit(k, first + k);
    }
};

// The sums of an atom's weights and of the weighted rows.
struct GateSums {
    Quad weighted, total;

    __device__ __forceinline__ GateSums() : total(constant(real(epsilon))) {}
    __device__ __forceinline__ void add(const Quad& weight, const Quad& row) {
        weighted = each([&](int e) { return multiply_add(weight.e[e], row.e[e], weighted.e[e]); });
        ::add(total, weight);
    }
    __device__ __forceinline__ Quad ratio() const { return over_total(weighted); }
    __device__ __forceinline__ Quad over_total(const Quad& x) const {
        return each([&](int e) { return x.e[e] * reciprocal(total.e[e]); });
    }
};
__device__ __forceinline__ Quad weights_of(const Quad& gate) {
    return each([&](int e) { return sigmoid(gate.e[e]); });
}

extern "C" __global__ void __launch_bounds__(THREADS, DOUBLE ? 1 : 3) rows_gate(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Team team(p);
    const int num_atoms = atoms_of(p), quad = team.quad;
    QuadDistances distances;
    Incoming bonds(p, team.idle ? p.num_atoms : team.first_row, num_atoms);
    wait_for_previous();
    each_atom(p, team, p.written, [&](int atom, bool there) {
        GateSums sums;
        const Quad target = there ? load_if(p, p.target, atom, quad) : Quad();
#pragma unroll 1
        for (int first = bonds.begin; there && first < bonds.end; first += together) {
            Quad gate[together], row[together], averaged[together];
            if (first > bonds.begin) bonds.ask(p, first);
            Incoming::each_of(first, bonds.end, [&](int k, int bond) {
                averaged[k] = load(p.averaged + offset_of(p, bonds.source[k], quad)), gate[k] = load_if(p, p.source, bonds.source[k], quad);
                row[k] = load(p.bonds + offset_of(p, p.code == nullptr ? bond : __ldg(p.code + bond), quad));
            });
            Incoming::each_of(first, bonds.end, [&](int k, int bond) {
                add(gate[k], target), add(gate[k], row[k]);  // the order of rows_expand, which computes the gates again in backward
                if (p.written != nullptr) store(p, p.written, bond, quad, gate[k]);
                if (LEAVES) distances.add(gate[k]);
                sums.add(weights_of(gate[k]), averaged[k]);
            });
        }
        bonds = Incoming(p, atom + team.step, num_atoms);
        store(p, p.out, atom, quad, sums.ratio());
    });
    if (LEAVES) leave_part<ColumnMoments>(p, team, distances, memory);
}

// With the gradient g of an atom's row o, the gradient of a bond's gate is s (1 - s) (h_j - o) g / (sum of s + epsilon). The last factor is the
// atom's share, from which rows_expand_grad computes the gradient of h.
extern "C" __global__ void __launch_bounds__(THREADS, DOUBLE ? 1 : 3) rows_gate_grad(const __grid_constant__ Parameters p) {
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
            const real* others = ENDS ? p.add : p.of_gates.add;  // the gates' gradient from elsewhere
            const Quad grad = load(p.grad + offset_of(p, atom, quad));
            Quad gate[together], row[together], other[together];
            const auto ask_others = [&](int k, int bond) { other[k] = load_if(p, others, bond, quad); };
            const auto ask = [&](int k, int bond) {
                gate[k] = load(p.gates + offset_of(p, bond, quad)), row[k] = load(p.averaged + offset_of(p, __ldg(p.col + bond), quad));
            };
            GateSums sums;
            const auto sum_up = [&](int k, int) { sums.add(weights_of(gate[k]), row[k]); };
#pragma unroll 1
            for (int first = begin + together; first < end; first += together) {
                Incoming::each_of(first, end, ask);
                Incoming::each_of(first, end, sum_up);
            }
            Incoming::each_of(begin, end, ask);  // most atoms have no more bonds than these, whose rows stay
            Incoming::each_of(begin, end, ask_others);
            Incoming::each_of(begin, end, sum_up);
            const Quad ratio = sums.ratio(), share = sums.over_total(grad);
            store(p, p.shares, atom, quad, share);
#pragma unroll 1
            for (int first = begin; p.of_gates.out != nullptr && first < end; first += together) {
                if (first > begin) Incoming::each_of(first, end, ask), Incoming::each_of(first, end, ask_others);
                Incoming::each_of(first, end, [&](int k, int bond) {
                    if (ENDS) other[k] = norm.grad(gate[k], activated_grad(p, p.end, bond, quad, norm(gate[k]), other[k]), batch);
                    const Quad s = weights_of(gate[k]);
                    add(other[k], each([&](int e) { return s.e[e] * (real(1) - s.e[e]) * (row[k].e[e] - ratio.e[e]) * share.e[e]; }));
                    store(p, p.of_gates.out, bond, quad, other[k]);
                    add(incoming, other[k]);
                });
            }
        }
        write_there(p, p.of_target, atom, quad, incoming, there);
    });
}
