// Gradients of the end of a layer: through dropout, activation and norm. Also the sums that the gradients of a norm need.
//
// Macro: LEAVES (the sums for the norm of the step before are left).
#include "rows_parts.cuh"

extern "C" __global__ void __launch_bounds__(256, DOUBLE ? 2 : 4) rows_grad_sums(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    unsigned char* room = memory;
    const Team team(p);
    const int num_atoms = atoms_of(p), quad = team.quad;
    LoadNorm next(p, p.next, team, room, false);
    wait_for_previous();
    GradSums sums;
    sums.norm = next.merged(p, team, num_atoms, room);
    if (!team.idle)
#pragma unroll 2
        for (int row = team.first_row; is_row(p, row); row += team.step)
            if (row < num_atoms) sums.add(p, row, quad, load(p.grad + offset_of(p, row, quad)), load(p.source + offset_of(p, row, quad)));
    leave_part<NormSums>(p, team, sums, room);
}

// What the gradient of a row is made from. It is loaded a row ahead, since loads after a store would wait for it.
struct Given {
    Ending ending;
    Quad x, grad, before;  // before: the input of the norm of the step before

    __device__ __forceinline__ Given(const Parameters& p, const Team& team, int row, int num_atoms) {
        if (team.idle || !is_row(p, row) || row >= num_atoms) return;
        ending = Ending(p, p.of_source, row, team.quad);
        x = load(p.source + offset_of(p, row, team.quad)), grad = load(p.grad + offset_of(p, row, team.quad));
        if (LEAVES) before = load(p.next_source + offset_of(p, row, team.quad));
    }
};

extern "C" __global__ void __launch_bounds__(256, DOUBLE ? 2 : 3) rows_finish_grad(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    unsigned char* room = memory;
    const Team team(p);
    const int num_atoms = atoms_of(p), quad = team.quad;
    LoadNorm loaded(p, p.end, team, room, true);
    GradSums sums;
    if (LEAVES) sums.norm = LoadNorm(p, p.next, team, room, false).merged(p, team, num_atoms, room);
    wait_for_previous();
    Given next(p, team, team.first_row, num_atoms);
    const Norm norm = loaded.merged(p, team, num_atoms, room);
    const bool batch = p.end.moments != nullptr;
    if (!team.idle)
        for (int row = team.first_row; is_row(p, row); row += team.step) {
            const Given now = next;
            next = Given(p, team, row + team.step, num_atoms);
            if (row >= num_atoms) {
                store(p, p.of_source.out, row, quad, constant(real(0)));
                continue;
            }
            Quad g = activated_grad(p, p.end, row, quad, norm(now.x), now.grad);
            g = now.ending.write(p, p.of_source, row, quad, norm.grad(now.x, g, batch));
            if (LEAVES) sums.add(p, row, quad, g, now.before);
        }
    if (LEAVES) leave_part<NormSums>(p, team, sums, room);
}
