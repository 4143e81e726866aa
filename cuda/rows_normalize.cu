// Rows scaled to length 1, as torch.nn.functional.normalize does, and the gradient.
#include "rows_warp_teams.cuh"

constexpr real shortest = real(1e-12);

__device__ __forceinline__ real length_of(const Parameters& p, const WarpTeam& team, const Quad (&x)[turns]) {
    return root(team.over_row(p, [&](int turn, int) { return product(x[turn], x[turn]); }));
}

extern "C" __global__ void __launch_bounds__(256) rows_normalize(const __grid_constant__ Parameters p) {
    const WarpTeam team(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    for (int row = team.first; team.more(p, row); row += team.step) {
        Quad x[turns];
        team.load_row(x, p, p.source, row, row < num_atoms);
        const real length = length_of(p, team, x), divisor = length < shortest ? shortest : length;
        if (row >= p.num_atoms) continue;
        team.each_quad(p, [&](int turn, int quad) { store(p, p.out, row, quad, each([&](int e) { return x[turn].e[e] / divisor; })); });
    }
}

extern "C" __global__ void __launch_bounds__(256) rows_normalize_grad(const __grid_constant__ Parameters p) {
    const WarpTeam team(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    for (int row = team.first; team.more(p, row); row += team.step) {
        const bool there = row < num_atoms;
        Quad x[turns], g[turns];
        team.load_row(x, p, p.source, row, there);
        team.load_row(g, p, p.grad, row, there);
        const real length = length_of(p, team, x), divisor = length < shortest ? shortest : length;
        team.each_quad(p, [&](int turn, int) { x[turn] = each([&](int e) { return x[turn].e[e] / divisor; }); });
        const real along = team.over_row(p, [&](int turn, int) { return product(g[turn], x[turn]); });
        const real projection = length < shortest ? real(0) : along;  // shorter rows are divided by a constant
        if (row >= p.num_atoms) continue;
        team.each_quad(p, [&](int turn, int quad) {
            if (there)
                write(p, p.of_source, row, quad, each([&](int e) { return (g[turn].e[e] - x[turn].e[e] * projection) / divisor; }));
            else
                store(p, p.of_source.out, row, quad, constant(real(0)));
        });
    }
}
