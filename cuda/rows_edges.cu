// From atoms to directed bonds and back, and the gradients. Each thread has four columns and goes through the bonds that point at an atom.
// `paired` has the position of each bond's reverse.
//
// Macros: THREADS (of a block), TABLE (the gradient of a table of distinct bonds is wanted; a block has `codes` of its rows).
#include "relu_signs.cuh"
#include "rows_edges.cuh"
#include "rows_table.cuh"

__device__ __forceinline__ unsigned char& signs_of(const Parameters& p, int bond, int quad) { return p.signs[offset_of(p, bond, quad) / 4]; }

// Writes a gradient of a bond. With `positive`, where a product's result is, it first goes back through `end`, a relu after that product.
__device__ __forceinline__ void write_grad(const Parameters& p, int bond, int quad, Quad x) {
    if (p.positive != nullptr) {
        const uint32 positive = four_signs(__ldg(words_of(p.positive, (p.width + 15) / 16, bond, quad / 4)), bond, 4 * quad);
        x = dropped(p, p.end, bond, quad, x);
        x = each([&](int e) { return positive >> e & 1 ? x.e[e] : real(0); });
    }
    write(p, p.of_source, bond, quad, x);
}

// The rows may be taken through `end` too, and are then `written`, and the `signs` by which relu goes.
extern "C" __global__ void __launch_bounds__(THREADS) rows_expand(const __grid_constant__ Parameters p) {
    const Team team(p);
    wait_for_previous();
    each_atom(p, team, p.out, [&](int atom, bool there) {
        if (!there) return;
        Quad x[few], more[few];
        const auto ask = [&](int i, int bond) {
            x[i] = load_if(p, p.source, __ldg(p.col + bond), team.quad);
            if (p.bonds != nullptr) more[i] = load(p.bonds + offset_of(p, p.code == nullptr ? bond : __ldg(p.code + bond), team.quad));
        };
        each_few_bonds(p, atom, ask, [&](int i, int bond) {
            if (p.target != nullptr) add(x[i], load(p.target + offset_of(p, atom, team.quad)));
            add(x[i], more[i]);
            if (p.out != nullptr) store(p, p.out, bond, team.quad, x[i]);
            if (p.signs != nullptr) signs_of(p, bond, team.quad) = (x[i].e[0] > 0) | (x[i].e[1] > 0) << 1 | (x[i].e[2] > 0) << 2 | (x[i].e[3] > 0) << 3;
            if (p.written != nullptr) store(p, p.written, bond, team.quad, activated(p, p.end, bond, team.quad, x[i]));
        });
    });
    if (p.written != nullptr) each_atom(p, team, p.written, [](int, bool) {});
}

extern "C" __global__ void __launch_bounds__(THREADS) rows_sum_incoming(const __grid_constant__ Parameters p) {
    const Team team(p);
    wait_for_previous();
    each_atom(p, team, nullptr, [&](int atom, bool there) {
        Quad sum;
        if (there) each_bond(p, atom, [&](int bond) { add(sum, load(p.source + offset_of(p, bond, team.quad))); });
        store(p, p.out, atom, team.quad, sum);
    });
}

extern "C" __global__ void __launch_bounds__(THREADS) rows_sum_incoming_grad(const __grid_constant__ Parameters p) {
    const Team team(p);
    wait_for_previous();
    each_atom(p, team, p.of_source.out, [&](int atom, bool there) {
        if (!there) return;
        const Quad grad = load(p.grad + offset_of(p, atom, team.quad));
        each_bond(p, atom, [&](int bond) { write_grad(p, bond, team.quad, grad); });
    });
}

// Sums the rows of the bonds that point at an atom, and gives each bond that leaves it the sum but for its reverse's row. The rows may be
// taken through `end` first. Backward, with `grad`, goes the other way: each bond that points at the atom gets the sum of the gradients of
// those that leave it but for its reverse's.
extern "C" __global__ void __launch_bounds__(THREADS) rows_sum_non_backtracking(const __grid_constant__ Parameters p) {
    const Team team(p);
    const bool backward = p.grad != nullptr;
    const real* rows = backward ? p.grad : p.source;
    wait_for_previous();
    each_atom(p, team, p.of_source.out, [&](int atom, bool there) {
        if (!there) return;
        const int begin = __ldg(p.rowptr + atom), end = __ldg(p.rowptr + atom + 1);
        const auto from = [&](int bond) { return load(rows + offset_of(p, backward ? p.paired[bond] : bond, team.quad)); };
        const auto ended = [&](int bond, const Quad& x) { return p.ends ? activated(p, p.end, bond, team.quad, x) : x; };
        Quad first[few], sum;  // the first rows stay
#pragma unroll
        for (int i = 0; i < few; i++)
            if (begin + i < end) first[i] = from(begin + i);
#pragma unroll
        for (int i = 0; i < few; i++)
            if (begin + i < end) add(sum, first[i] = ended(begin + i, first[i]));
        for (int bond = begin + few; bond < end; bond++) add(sum, ended(bond, from(bond)));
        const auto give = [&](int bond, const Quad& own) {
            write_grad(p, backward ? bond : p.paired[bond], team.quad, each([&](int e) { return sum.e[e] - own.e[e]; }));
        };
#pragma unroll
        for (int i = 0; i < few; i++)
            if (begin + i < end) give(begin + i, first[i]);
        for (int bond = begin + few; bond < end; bond++) give(bond, ended(bond, from(bond)));
    });
}

// Gives both directions of every bond their mean, and backward that of their gradients.
extern "C" __global__ void __launch_bounds__(THREADS) rows_average_directions(const __grid_constant__ Parameters p) {
    const Team team(p);
    const real* rows = p.grad != nullptr ? p.grad : p.source;
    wait_for_previous();
    each_atom(p, team, p.of_source.out, [&](int atom, bool there) {
        if (!there) return;
        each_bond(p, atom, [&](int bond) {
            const Quad x = load(rows + offset_of(p, bond, team.quad)), y = load(rows + offset_of(p, p.paired[bond], team.quad));
            write_grad(p, bond, team.quad, each([&](int e) { return real(0.5) * (x.e[e] + y.e[e]); }));
        });
    });
}

// The bonds that leave an atom are the reverses of those that point at it. With a `source`, or its `signs`, gradients first go back through
// `end`, whose input it is, and to these `add` and `more` are added. With `gates` the gradient of the rows that these average follows:
// the sum over the bonds that leave an atom of sigmoid(t) times the share of the gradient that their target has (rows_gate.cu).
extern "C" __global__ void __launch_bounds__(THREADS, DOUBLE ? 1 : 4) rows_expand_grad(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const int ranges = TABLE ? ranges_of(p) : 1, range = TABLE ? blockIdx.x % ranges : 0;
    const Team team(p, blockIdx.x / ranges, gridDim.x / ranges);
    const TableSums table(p, team, memory, range * p.codes);
    wait_for_previous();
    if (TABLE) table.clear(p, team);
    const bool first = range == 0;
    if (!TABLE && p.of_bonds.out != nullptr) each_atom(p, team, p.of_bonds.out, [](int, bool) {});
    each_atom(p, team, nullptr, [&](int atom, bool there) {
        constexpr int together = 2;  // bonds whose rows are under way together: more take registers of which four blocks have too few
        const bool pulls = first && p.gates != nullptr, adds = first && p.of_target.out != nullptr;
        Quad sum, incoming, averaged, terms[together], source[together], more[together];
        int back[together], signs[together];
        const auto ask = [&](int i, int bond) {
            back[i] = p.paired[bond], terms[i] = load_if(p, p.grad, back[i], team.quad);
            source[i] = load_if(p, pulls ? p.gates : p.source, back[i], team.quad);
            if (p.signs != nullptr) signs[i] = signs_of(p, back[i], team.quad);
            more[i] = pulls ? load(p.shares + offset_of(p, __ldg(p.col + bond), team.quad)) : load_if(p, p.add, back[i], team.quad);
            if (p.more != nullptr) add(more[i], load(p.more + offset_of(p, back[i], team.quad)));
        };
        const auto use = [&](int i, int bond) {
            if (pulls) add(averaged, each([&](int e) { return sigmoid(source[i].e[e]) * more[i].e[e]; }));
            if (p.grad == nullptr) return;
            if (p.signs != nullptr) source[i] = each([&](int e) { return real(signs[i] >> e & 1); });
            if (p.source != nullptr || p.signs != nullptr) terms[i] = activated_grad(p, p.end, back[i], team.quad, source[i], terms[i]);
            if (!pulls) add(terms[i], more[i]);
            add(sum, terms[i]);
            if (TABLE)
                table.add(p, __ldg(p.code + back[i]), terms[i]);
            else if (p.of_bonds.out != nullptr)
                write(p, p.of_bonds, back[i], team.quad, terms[i]);
            if (adds) add(incoming, load(p.grad + offset_of(p, bond, team.quad)));
        };
        if (there) each_few_bonds<together>(p, atom, ask, use);
        if (!first) return;
        write_there(p, p.of_source, atom, team.quad, sum, there);
        write_there(p, p.of_target, atom, team.quad, incoming, there);
        write_there(p, p.of_averaged, atom, team.quad, averaged, there);
    });
    if (TABLE) table.leave(p, team);
}

// Adds a gradient to an earlier one, on any rows.
extern "C" __global__ void __launch_bounds__(THREADS) rows_add_grad(const __grid_constant__ Parameters p) {
    const Team team(p);
    wait_for_previous();
    const int num_rows = atoms_of(p);
    if (team.idle) return;
    for (int row = team.first_row; is_row(p, row); row += team.step) {
        if (row < num_rows)
            write(p, p.of_source, row, team.quad, load(p.grad + offset_of(p, row, team.quad)));
        else
            store(p, p.of_source.out, row, team.quad, constant(real(0)));
    }
}
