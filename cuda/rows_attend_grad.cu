// The gradients of rows_attend.cu, in two pulls: each target along the bonds that point at it, then each source along those that leave it.
#include "rows_attend.cuh"

// The sums over the bonds of a table's distinct rows that a block leaves.
struct TableColumns {
    Columns* mine;  // [codes] for each thread
    int first;      // row of the table

    __device__ __forceinline__ void clear(const Attention& p) const {
        for (int code = 0; code < p.codes; code++) mine[code * threads] = {};
    }
    __device__ __forceinline__ void add(const Attention& p, int row, const Columns& term) const {
        if (row >= first && row < first + p.codes) ::add(mine[(row - first) * threads], real(1), term);
    }
    // Merges the sums of the block's groups and leaves them.
    __device__ __forceinline__ void leave(const Attention& p, const Lane& lane, int part_number) const {
        real* part = p.table_parts + size_t(part_number) * p.num_bond_rows * p.stride;
        __syncthreads();
        if (threadIdx.x >= group) return;
        for (int code = 0; code < p.codes && first + code < p.num_bond_rows; code++) {
            Columns sum = mine[code * threads];
            for (int other = 1; other < groups; other++) ::add(sum, real(1), mine[code * threads + other * group]);
            real* to = part + size_t(first + code) * p.stride;
            if (p.adds) ::add(sum, real(1), load(lane, to));
            store_row(lane, p, to, sum);
        }
    }
};

// Computes what backward needs of each atom, the gradients of the targets and bonds, and those of att in GATv2 and of att_bonds in GAT.
extern "C" __global__ void __launch_bounds__(threads, resident) rows_attend_targets(const __grid_constant__ Attention p) {
    SHARED_MEMORY(memory);
    const int ranges = TABLE ? (p.num_bond_rows + p.codes - 1) / p.codes : 1, range = blockIdx.x / head_blocks % ranges;
    const int part = blockIdx.x / head_blocks / ranges, parts = gridDim.x / head_blocks / ranges;
    const bool writes = range == 0;
    const Lane lane;
    const TableColumns table{reinterpret_cast<Columns*>(memory) + threadIdx.x, range * p.codes};
    wait_for_previous();
    if (TABLE) table.clear(p);
    const Vectors of(lane, p);
    const int num_bonds = __ldg(p.rowptr + atoms_of(p));
    Columns of_vector = {};
    each_atom(p, part, parts, lane.there, [&](int atom, bool row, bool there, const Bonds& bonds) {
        for (int bond = num_bonds + atom; !TABLE && row && p.of_bonds.out != nullptr && bond < p.num_bond_rows; bond += p.num_atoms)
            store_row(lane, p, p.of_bonds.out + size_t(bond) * p.stride, {});
        const Columns x = load_row(lane, p, p.source, atom, there), grad = load_grad(lane, p, atom, there);
        const Columns target = V2 ? load_row(lane, p, p.target, atom, there) : Columns();
        Node node = {};
        if (!V2) node.score = product(of.att_target, x);
        if (there) {
            const real* softmax = p.softmax + size_t(atom) * p.softmax_stride + 2 * lane.head;
            node.largest = softmax[0], node.scale = softmax[1];
        }
        struct Loaded {
            Columns source, bond;
        };
        const auto load_entry = [&](bool is_bond, int bond, int from) {
            return Loaded{load_row(lane, p, p.source, from, is_bond), Bonds::load_bond(lane, p, bond, is_bond)};
        };
        const auto entry_of = [&](bool is_bond, int bond, const Loaded& loaded) {
            const real factor = is_bond ? kept(p, bond, lane.head, false) : real(0);
            return Entry(p, of, node, loaded.source, target, loaded.bond, grad, factor, is_bond);
        };
        Columns rows = {};
        int others = 0;
        real mean = 0, of_scores = 0, slopes = 0;  // GAT's gradients through the leaky relu but for the mean, and what it is multiplied by
        const auto count = [&](const Entry& it) {
            mean += it.of_score;
            if (V2) return;
            of_scores += it.through_leaky(p);
            slopes += it.weight * slope(p, it.of_pre);
        };
        bonds.each_bond(p, load_entry, [&](bool is_bond, int bond, int, const Loaded& loaded) {
            count(entry_of(is_bond, bond, loaded));
            if (BONDS) add(rows, real(1), loaded.bond);
            others += is_bond;
        });
        rows = Bonds::divided(rows, others);
        const real factor = there ? kept(p, atom, lane.head, true) : real(0);
        count(Entry(p, of, node, x, target, rows, grad, factor, there));
        node.mean = mean;
        if (there && writes && lane.leads()) {
            const size_t at = size_t(atom) * HEADS + lane.head;
            reinterpret_cast<Node*>(p.nodes)[at] = node;
            if (!V2) p.of_targets[at] = of_scores - mean * slopes;
        }
#if V2 || BONDS
        const Entry own(p, of, node, x, target, rows, grad, factor, there);
        const Columns of_own = own.of_columns(p, of);
        Columns of_target = of_own;
        const auto to_vector = [&](const Entry& it, const Columns& of_bond) {
            if (V2)
                each_column([&](int r, int v) { of_vector.at[r].of[v] += it.of_score * it.pre.at[r].of[v] * slope(p, it.pre.at[r].of[v]); });
            else
                add(of_vector, it.through_leaky(p), of_bond);
        };
        to_vector(own, rows);
        const real share = real(1) / (others > 0 ? others : 1);
        bonds.each_bond(p, load_entry, [&](bool is_bond, int bond, int from, const Loaded& loaded) {
            const Entry it = entry_of(is_bond, bond, loaded);
            if (!is_bond) {
                if (BONDS && !TABLE && there && from == atom) write(lane, p, p.of_bonds, bond, {});
                return;
            }
            to_vector(it, loaded.bond);
            Columns term = it.of_columns(p, of);
            if (V2) add(of_target, real(1), term);
            if (!BONDS) return;
            add(term, share, of_own);
            if (TABLE)
                table.add(p, Bonds::row_of(p, bond), term);
            else
                write(lane, p, p.of_bonds, bond, term);
        });
        if (V2 && writes && row && lane.there) {
            if (there)
                write(lane, p, p.of_target, atom, of_target);
            else if (p.of_target.out != nullptr)
                store_row(lane, p, p.of_target.out + size_t(atom) * p.stride, {});
        }
#endif
    });
    if (TABLE) table.leave(p, lane, part);
    if ((V2 || BONDS) && writes) leave_vector(lane, of_vector, p.sum_parts + size_t(part) * width, memory);
}

// Computes the gradients of the sources, and in GAT those of att and att_target.
extern "C" __global__ void __launch_bounds__(threads, resident) rows_attend_sources(const __grid_constant__ Attention p) {
    SHARED_MEMORY(memory);
    const int part = blockIdx.x / head_blocks, parts = gridDim.x / head_blocks;
    const Lane lane;
    wait_for_previous();
    const Vectors of(lane, p);
    Columns of_att = {}, of_att_target = {};
    each_atom(p, part, parts, lane.there, [&](int atom, bool row, bool there, const Bonds& bonds) {
        const Columns x = load_row(lane, p, p.source, atom, there);
        Columns sum = {};
        const real score = V2 ? real(0) : product(of.att, x);
        real of_source = 0;  // GAT's gradient of att . source
        // What the entry of another atom, or of this one, needs of it.
        struct Loaded {
            Columns grad, target, bond;
            Node node;
            int row;  // that of dropout
        };
        const auto load_entry = [&](bool some, int to, int row, const Columns& bond) {
            const Node node = some ? reinterpret_cast<const Node*>(p.nodes)[size_t(to) * HEADS + lane.head] : Node{};
            return Loaded{load_grad(lane, p, to, some), V2 ? load_row(lane, p, p.target, to, some) : Columns(), bond, node, row};
        };
        const auto add_entry = [&](const Loaded& loaded, bool is_own, bool some) {
            Node node = loaded.node;
            node.score += score;
            const real factor = some ? kept(p, loaded.row, lane.head, is_own) : real(0);
            const Entry it(p, of, node, x, loaded.target, loaded.bond, loaded.grad, factor, some, true);
            add(sum, it.used, loaded.grad);
            if (V2)
                add(sum, real(1), it.of_columns(p, of));
            else
                of_source += it.through_leaky(p);
        };
        int others;
        const Columns mean = BONDS ? bonds.mean(lane, p, others) : Columns();
        add_entry(load_entry(there, atom, atom, mean), true, there);
        const auto load_other = [&](bool is_bond, int bond, int to) {
            const int back = (BONDS || DROPPED) && is_bond ? p.paired[bond] : 0;
            return load_entry(is_bond, to, back, Bonds::load_bond(lane, p, back, is_bond));
        };
        bonds.each_bond(p, load_other, [&](bool is_bond, int, int, const Loaded& loaded) { add_entry(loaded, false, is_bond); });
        if (!V2 && there) {
            const real of_target = p.of_targets[size_t(atom) * HEADS + lane.head];
            add(sum, of_source, of.att);
            add(sum, of_target, of.att_target);
            add(of_att, of_source, x);
            add(of_att_target, of_target, x);
        }
        if (there)
            write(lane, p, p.of_source, atom, sum);
        else if (row && lane.there && p.of_source.out != nullptr)
            store_row(lane, p, p.of_source.out + size_t(atom) * p.stride, {});
    });
    if (V2) return;
    real* left = p.sum_parts + size_t(part) * 2 * width;
    leave_vector(lane, of_att, left, memory);
    leave_vector(lane, of_att_target, left + width, memory);
}
