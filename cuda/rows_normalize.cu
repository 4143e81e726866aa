// Rows scaled to length 1, as torch.nn.functional.normalize does, and the gradient.
#include "rows_warp_teams.cuh"

constexpr real shortest = real(1e-12);

__device__ __forceinline__ real length_of(const Parameters& p, const WarpTeam& team, const Quad (&x)[lane_quads]) {
    return root(team.over_row(p, [&](int i, int) { return product(x[i], x[i]); }));
}

extern "C" __global__ void __launch_bounds__(256) rows_normalize(const __grid_constant__ Parameters p) {
    const WarpTeam team(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    for (int row = team.first; team.more(p, row); row += team.step) {
        Quad x[lane_quads];
        team.load_row(x, p, p.source, row, row < num_atoms);
        const real length = length_of(p, team, x), divisor = length < shortest ? shortest : length;
        if (row >= p.num_atoms) continue;
        team.each_quad(p, [&](int i, int quad) { store(p, p.out, row, quad, each([&](int e) { return x[i].e[e] / divisor; })); });
    }
}

extern "C" __global__ void __launch_bounds__(256) rows_normalize_grad(const __grid_constant__ Parameters p) {
    const WarpTeam team(p);
    const int num_atoms = atoms_of(p);
    wait_for_previous();
    for (int row = team.first; team.more(p, row); row += team.step) {
        const bool there = row < num_atoms;
        Quad x[lane_quads], g[lane_quads];
        team.load_row(x, p, p.source, row, there);
        team.load_row(g, p, p.grad, row, there);
        const real length = length_of(p, team, x), divisor = length < shortest ? shortest : length;
        team.each_quad(p, [&](int i, int) { x[i] = each([&](int e) { return x[i].e[e] / divisor; }); });
        const real along = team.over_row(p, [&](int i, int) { return product(g[i], x[i]); });
        const real projection = length < shortest ? real(0) : along;  // shorter rows are divided by a constant
        if (row >= p.num_atoms) continue;
        team.each_quad(p, [&](int i, int quad) {
            if (there)
                write(p, p.of_source, row, quad, each([&](int e) { return (g[i].e[e] - x[i].e[e] * projection) / divisor; }));
            else
                store(p, p.of_source.out, row, quad, constant(real(0)));
        });
    }
}
