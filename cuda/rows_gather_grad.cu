// Gradients of the sums along the bonds.
//
// A thread has four columns of an atom j. It pulls from the atoms i that its own bonds lead to, which are those that it has bonds from. The
// gradient of h_j is (1 + eps) g_j + sum over i of w g_i [h_j + e > 0]. Here e belongs to the bond from j to i, the reverse of the listed
// one, and `paired` has its row. Every such term is also the gradient of that bond's row.
//
// Messages with rows of bonds are summed with weight 1.
//
// Blocks leave the gradients of distinct bonds and of eps in parts (part_sums.cu).
//
// Macros: THREADS (of a block), TABLE (the gradient of a table of distinct bonds is wanted; a block has `codes` of its rows), LEAVES (the sums for the norm of the
// step before are left).
#include "rows.cuh"
#include "gather.cuh"
#include "rows_table.cuh"

struct Term {
    Quad grad, other;  // the bond's row, or the largest of atom i's neighbours
    real weight;
};
struct Sum {
    real value;
    __device__ __forceinline__ void merge(const Sum& x) { value += x.value; }
};

// Returns what each of the neighbours of atom i that equal the largest gets of its gradient.
__device__ __forceinline__ Quad shared_equally(const Parameters& p, int i, int quad, const Quad& grad, const Quad& largest) {
    Quad count;
    const int end = __ldg(p.rowptr + i + 1);
    for (int bond = __ldg(p.rowptr + i); bond < end; bond++) {
        const Quad x = load(p.source + offset_of(p, __ldg(p.col + bond), quad));
        add(count, each([&](int e) { return real(x.e[e] == largest.e[e]); }));
    }
    return each([&](int e) { return grad.e[e] / count.e[e]; });
}

extern "C" __global__ void __launch_bounds__(THREADS, (DOUBLE ? 512 : LEAVES ? 768 : 1024) / THREADS) rows_gather_grad(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const int ranges = TABLE ? ranges_of(p) : 1, first_code = TABLE ? blockIdx.x % ranges * p.codes : 0;
    const Team team(p, blockIdx.x / ranges, gridDim.x / ranges);
    const int num_atoms = atoms_of(p), quad = team.quad;
    const bool writes = first_code == 0 && p.of_source.out != nullptr;
    unsigned char *of_norm = memory, *free = of_norm + (LEAVES ? 6 * 4 * p.lanes * sizeof(real) : 0);
    const TableSums table(p, team, free, first_code);
    Sum eps_sum = {};
    int j = team.idle ? p.num_atoms : team.first_row;
    Incoming bonds(p, p.paired, j, num_atoms);
    GradSums left;
    if (LEAVES) left.norm = LoadNorm(p, p.next, team, of_norm, false).merged(p, team, num_atoms, of_norm);
    wait_for_previous();
    if (TABLE) table.clear(p, team);
    const int num_bonds = __ldg(p.rowptr + num_atoms);
    const auto load_term = [&](int i, int row) {
        Term it = {load(p.grad + offset_of(p, i, quad)), {}, real(1)};
        if (gcn) it.weight = p.scale[i];
        if (AGGR == AGGR_MEAN) it.weight = real(1) / static_cast<real>(__ldg(p.rowptr + i + 1) - __ldg(p.rowptr + i));
        if (AGGR == AGGR_MAX) it.other = load(p.largest + offset_of(p, i, quad));
        if (BONDS) it.other = load(p.bonds + offset_of(p, row, quad));
        return it;
    };
    for (const int step = team.step; is_row(p, j); j += step) {
        for (int bond = num_bonds + j; !TABLE && p.of_bonds.out != nullptr && bond < p.num_bond_rows; bond += p.num_atoms)
            store(p, p.of_bonds.out, bond, quad, constant(real(0)));
        if (j >= num_atoms) {
            if (writes) store(p, p.of_source.out, j, quad, constant(real(0)));
            bonds = Incoming(p, p.paired, j + step, num_atoms);  // from the last row on, padding comes first
            continue;
        }
        Term loaded[together];
        bonds.load_bonds(0, load_term, loaded);
        const bool counts = AGGR == AGGR_GCN_LOOPS || p.eps != nullptr;  // the atom itself counts
        const Quad h = BONDS || AGGR == AGGR_MAX || p.sum_parts != nullptr ? load(p.source + offset_of(p, j, quad)) : Quad();
        const Quad own = counts ? load(p.grad + offset_of(p, j, quad)) : Quad();
        const Ending ending = writes ? Ending(p, p.of_source, j, quad) : Ending();
        const Quad before = LEAVES ? load(p.next_source + offset_of(p, j, quad)) : Quad();  // not after the store, which it would wait for
        const real scale = gcn ? p.scale[j] : real(1);
        const Incoming next(p, p.paired, j + step, num_atoms);  // loaded while the rows of j are under way
        Quad sum;
        bonds.each_bond(p, p.paired, loaded, load_term, [&](const Term& it, int i, int row) {
            if (AGGR == AGGR_GCN_LOOPS && i == j) return;
            Quad term = it.grad;
            if (AGGR == AGGR_MAX) {
                const Quad share = shared_equally(p, i, quad, it.grad, it.other);
                term = each([&](int e) { return h.e[e] == it.other.e[e] ? share.e[e] : real(0); });
            }
            if (BONDS) term = each([&](int e) { return h.e[e] + it.other.e[e] > real(0) ? term.e[e] : real(0); });
            add(sum, scale * it.weight, term);
            if (TABLE)
                table.add(p, row, term);
            else if (BONDS && p.of_bonds.out != nullptr)
                write(p, p.of_bonds, row, quad, term);
        });
        if (counts) add(sum, AGGR == AGGR_GCN_LOOPS ? scale * scale : real(1) + *p.eps, own);
        if (p.sum_parts != nullptr)
#pragma unroll
            for (int e = 0; e < 4; e++) eps_sum.value = multiply_add(own.e[e], h.e[e], eps_sum.value);
        if (writes) sum = ending.write(p, p.of_source, j, quad, sum);
        if (LEAVES && first_code == 0) left.add(p, j, quad, sum, before);
        bonds = next;
    }
    if (TABLE) table.leave(p, team);
    if (LEAVES && first_code == 0) leave_part<NormSums>(p, team, left, free);
    if (p.sum_parts == nullptr || first_code > 0) return;
    Sum* sums = reinterpret_cast<Sum*>(free);  // [threads]
    __syncthreads();
    sums[threadIdx.x] = eps_sum;
    merge_block(sums, blockDim.x, 1);
    if (threadIdx.x == 0) p.sum_parts[team.part * p.chunks + team.chunk] = sums[0].value;
}
