// Twins: atoms of a molecule with the same features whose only bond goes to the same atom, such as a methyl's hydrogens. All layers give them
// the same values, so one row is computed for all of them. Its gradient is the sum of theirs.
#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>

#include "gcn_stack.hpp"

namespace molgcn {

template <typename T>
class Rows {
public:
    // Every atom has a row of its own unless `merge`, as dropout tells twins apart. Throws std::invalid_argument if a bond leaves its molecule.
    Rows(const T* x, int num_features, const int32_t* ptr, const int32_t* rowptr, const int32_t* col, int64_t num_graphs, bool merge, int num_threads)
        : row_ptr_(new int32_t[num_graphs + 1]),
          atom_row_(new int32_t[ptr[num_graphs]]),
          row_atom_(new int32_t[ptr[num_graphs]]),
          copies_(new T[ptr[num_graphs]]) {
        bool outside = false;
#pragma omp parallel for num_threads(num_threads) reduction(|| : outside)
        for (int64_t g = 0; g < num_graphs; g++) {
            const int first = ptr[g], last = ptr[g + 1];
            bool stays = true;
            for (int e = rowptr[first]; e < rowptr[last]; e++) stays = stays && col[e] >= first && col[e] < last;
            outside = outside || !stays;
            row_ptr_[g + 1] = stays && merge ? number(x, num_features, rowptr, col, first, last) : last - first;
        }
        if (outside) throw std::invalid_argument("gcn_stack: col has an atom of another molecule; bonds must stay inside their molecule");
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

    void attach(Stack<T>& stack) const {
        stack.num_rows = row_ptr_[stack.num_graphs];
        stack.row_ptr = row_ptr_.get();
        stack.row_atom = row_atom_.get();
        stack.atom_row = atom_row_.get();
        stack.copies = copies_.get();
    }

private:
    // Numbers the rows of the atoms [first, last), counted from the molecule's first; returns how many there are.
    int number(const T* x, int num_features, const int32_t* rowptr, const int32_t* col, int first, int last) const {
        const auto leaf = [&](int i) { return rowptr[i + 1] - rowptr[i] == 1; };
        const auto features = [&](int i) { return x + int64_t{i} * num_features; };
        int rows = 0;
        for (int i = first; i < last; i++) {
            atom_row_[i] = -1;
            if (leaf(i) && col[rowptr[i]] != i) {
                const int neighbor = col[rowptr[i]];
                for (int e = rowptr[neighbor]; e < rowptr[neighbor + 1] && atom_row_[i] < 0; e++) {
                    const int twin = col[e];
                    if (twin < i && leaf(twin) && col[rowptr[twin]] == neighbor && std::memcmp(features(twin), features(i), num_features * sizeof(T)) == 0) {
                        atom_row_[i] = atom_row_[twin];
                    }
                }
            }
            if (atom_row_[i] < 0) atom_row_[i] = rows++;
        }
        return rows;
    }

    std::unique_ptr<int32_t[]> row_ptr_, atom_row_, row_atom_;
    std::unique_ptr<T[]> copies_;
};

}  // namespace molgcn
