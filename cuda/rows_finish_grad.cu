// Gradients of the end of a layer: through dropout, relu and norm.
//
// Macro: SUMS (also sum the gradients of the norm's weight and bias; with the batch's statistics this launch comes first, and the source's
// gradient follows in another).
#include "rows_merge.cuh"
#include "rows_norm.cuh"

extern "C" __global__ void __launch_bounds__(SUMS ? 1024 : 256) rows_finish_grad(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    int* flag = reinterpret_cast<int*>(memory);
    NormSums* all = reinterpret_cast<NormSums*>(memory + 16);  // [teams][4 lanes]
    const Team team(p);
    const int num_atoms = atoms_of(p), quad = team.quad, columns = 4 * p.lanes;
    wait_for_previous();
    NormSums sums[4];
    Affine norm;
    Quad grad_bias, grad_weight;
    if (!team.idle) {
        norm = Affine(p, quad);
        if (!SUMS && p.weight != nullptr) grad_bias = load_vector(p, p.grad_bias, quad), grad_weight = load_vector(p, p.grad_weight, quad);
    }
    const bool affine = p.weight != nullptr, writes = p.of_source.out != nullptr;
#pragma unroll 2
    for (int row = team.idle ? p.num_atoms : team.first_row(); row < p.num_atoms; row += team.step()) {
        if (row >= num_atoms) {
            if (writes) store(p, p.of_source.out, row, quad, constant(real(0)));
            continue;
        }
        const Ending ending = writes ? Ending(p, p.of_source, row, quad) : Ending();
        const Quad x = load(p.source + offset_of(p, row, quad)), given = load(p.grad + offset_of(p, row, quad));
        const Quad g = activated_grad(p, row, quad, affine ? norm(x) : x, given);
        if (SUMS) {
            const Quad normal = norm.normal(x);
#pragma unroll
            for (int e = 0; e < 4; e++) sums[e].add(g.e[e], normal.e[e]);
            if (writes) ending.write(p, p.of_source, row, quad, each([&](int e) { return norm.factor.e[e] * g.e[e]; }));
        } else {
            ending.write(p, p.of_source, row, quad, affine ? through_statistics(norm, x, g, grad_bias, grad_weight, static_cast<real>(num_atoms)) : g);
        }
    }
    if (!SUMS) return;
    if (team.index < team.per_block)
#pragma unroll
        for (int e = 0; e < 4; e++) all[team.index * columns + 4 * team.lane + e] = sums[e];
    merge_blocks(p.merge, team.chunk, team.part, team.parts, columns, all, team.per_block, flag, [&](int i, const NormSums& it) {
        const int column = team.chunk * columns + i;
        if (column < p.width) p.grad_bias[column] = it.bias, p.grad_weight[column] = it.weight;
    });
}
