// Random walks on a molecule: the probabilities to be back at an atom, or across a bond, after 1, 2, ... steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace molgcn {

// Where a molecule's probabilities are written: its rows of rwse [N, atom_steps] and bond_rw [E, bond_steps].
struct Walks {
    float *rwse, *bond_rw;
    int64_t atom_steps, bond_steps;
};

// Walks one molecule at a time. Its buffers hold kColumns floats for each atom and are used again.
class RandomWalk {
  public:
    // Walks a molecule of `nodes` atoms. `degree` bonds point at each atom, from `neighbors`; a step goes from an atom to a random
    // neighbour.
    //
    // P^t = P P^(t-1) takes no more than sums of neighbours' rows, and its columns do not interact. A few columns at a time keep memory in
    // proportion to the atoms. Column i holds what is asked of atom i and of the bonds that point at it.
    template <class Degree, class Neighbor>
    void run(const Degree* degree, const Neighbor* neighbors, int64_t nodes, const Walks& walks) {
        read(degree, neighbors, nodes);
        for (int64_t first = 0; first < nodes; first += kColumns) {
            const int64_t columns = std::min<int64_t>(kColumns, nodes - first);
            std::fill(power_.begin(), power_.end(), 0.0f);
            for (int64_t c = 0; c < columns; ++c) power_[(first + c) * kColumns + c] = 1.0f;
            for (int64_t step = 0; step < std::max(walks.atom_steps, walks.bond_steps); ++step) {
                multiply(nodes);
                for (int64_t c = 0; c < columns && step < walks.atom_steps; ++c)
                    walks.rwse[(first + c) * walks.atom_steps + step] = power_[(first + c) * kColumns + c];
                for (int64_t c = 0; c < columns && step < walks.bond_steps; ++c)
                    for (int64_t bond = rowptr_[first + c]; bond < rowptr_[first + c + 1]; ++bond)
                        walks.bond_rw[bond * walks.bond_steps + step] = power_[source_[bond] * kColumns + c];
            }
        }
    }

  private:
    static constexpr int64_t kColumns = 8;

    template <class Degree, class Neighbor>
    void read(const Degree* degree, const Neighbor* neighbors, int64_t nodes) {
        rowptr_.assign(1, 0);
        inverse_.clear();
        for (int64_t i = 0; i < nodes; ++i) {
            rowptr_.push_back(rowptr_.back() + degree[i]);
            inverse_.push_back(1.0f / std::max<float>(degree[i], 1.0f));
        }
        source_.assign(neighbors, neighbors + rowptr_.back());
        power_.resize(nodes * kColumns);
        next_.resize(nodes * kColumns);
    }

    void multiply(int64_t nodes) {
        for (int64_t i = 0; i < nodes; ++i) {
            float sum[kColumns] = {};
            for (int64_t bond = rowptr_[i]; bond < rowptr_[i + 1]; ++bond) {
                const float* row = power_.data() + source_[bond] * kColumns;
                for (int c = 0; c < kColumns; ++c) sum[c] += row[c];
            }
            for (int c = 0; c < kColumns; ++c) next_[i * kColumns + c] = sum[c] * inverse_[i];
        }
        std::swap(power_, next_);
    }

    std::vector<int64_t> rowptr_, source_;
    std::vector<float> inverse_, power_, next_;  // 1 / degree; columns of two powers of the matrix
};

}  // namespace molgcn
