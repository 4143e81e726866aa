// The rows that networks of graph convolutions compute: one for equal leaves, one for every other atom.
#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "gcn_network.hpp"
#include "merge_leaves.hpp"

namespace molgcn {

template <typename T>
class Rows {
public:
    // Numbers the rows: equal leaves share one with `merge`, else every atom has its own, since dropout tells equal leaves apart. Throws
    // std::invalid_argument if a bond leaves its molecule.
    Rows(const T* x, int num_features, const int32_t* ptr, const int32_t* rowptr, const int32_t* col, int64_t num_graphs, bool merge, int num_threads)
        : row_ptr_(new int32_t[num_graphs + 1]),
          atom_row_(new int32_t[ptr[num_graphs]]),
          row_atom_(new int32_t[ptr[num_graphs]]),
          copies_(new T[ptr[num_graphs]]) {
        bool outside = false;
#pragma omp parallel num_threads(num_threads) reduction(|| : outside)
        {
            std::vector<int32_t> copies;
#pragma omp for
            for (int64_t g = 0; g < num_graphs; g++) {
                const int first = ptr[g], last = ptr[g + 1];
                bool stays = true;
                for (int e = rowptr[first]; e < rowptr[last]; e++) stays = stays && col[e] >= first && col[e] < last;
                outside = outside || !stays;
                row_ptr_[g + 1] = stays && merge ? number(x, num_features, rowptr, col, first, last, copies) : last - first;
            }
        }
        if (outside) throw std::invalid_argument("layer_network: col has an atom of another molecule; bonds must stay inside their molecule");
        row_ptr_[0] = 0;
        for (int64_t g = 0; g < num_graphs; g++) row_ptr_[g + 1] += row_ptr_[g];
#pragma omp parallel for num_threads(num_threads)
        for (int64_t g = 0; g < num_graphs; g++) {
            int next = row_ptr_[g];
            for (int i = ptr[g]; i < ptr[g + 1]; i++) {
                const int row = merge ? atom_row_[i] + row_ptr_[g] : next;
                atom_row_[i] = row;
                if (row == next) {  // rows are in the order of their first atoms
                    row_atom_[row] = i;
                    copies_[row] = 0;
                    next++;
                }
                copies_[row] += 1;
            }
        }
    }

    const int32_t* row_ptr() const { return row_ptr_.get(); }

    void attach(Problem<T>& problem) const {
        problem.num_rows = row_ptr_[problem.num_graphs];
        problem.row_ptr = row_ptr_.get();
        problem.row_atom = row_atom_.get();
        problem.atom_row = atom_row_.get();
        problem.copies = copies_.get();
    }

private:
    struct Bonds {
        const int32_t *rowptr, *col;
        int first;
        int begin(int i) const { return rowptr[first + i]; }
        int end(int i) const { return rowptr[first + i + 1]; }
        int source(int e) const { return col[e] - first; }
    };

    // Numbers the rows of the atoms [first, last), counted from the molecule's first. Returns how many there are.
    int number(const T* x, int num_features, const int32_t* rowptr, const int32_t* col, int first, int last, std::vector<int32_t>& copies) const {
        const T* features = x + int64_t{first} * num_features;
        const auto alike = [=](int64_t i, int64_t j) {
            return std::memcmp(features + i * num_features, features + j * num_features, num_features * sizeof(T)) == 0;
        };
        if (last - first > static_cast<int>(copies.size())) copies.resize(last - first);
        return merge_leaves(last - first, Bonds{rowptr, col, first}, alike, atom_row_.get() + first, copies.data());
    }

    std::unique_ptr<int32_t[]> row_ptr_, atom_row_, row_atom_;
    std::unique_ptr<T[]> copies_;
};

}  // namespace molgcn
