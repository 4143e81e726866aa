// Merges equal leaves: atoms of a molecule with the same features whose only bond goes to the same atom, such as a methyl's hydrogens. All
// layers give them the same values, so that one row is computed for all of them. Its gradient is the sum of theirs.
#pragma once

#include <cstdint>

namespace molgcn {

constexpr int max_copies = 255;  // the most atoms a row stands for, a number that bf16 holds exactly

// Numbers the rows of a molecule's atoms in the order of their first atoms, and returns how many there are. Equal leaves share one. `bonds`
// gives the bonds [begin(i), end(i)) that point at atom i and the source of each. `alike` tells whether two atoms have the same features.
// `row` and `copies` have room for all atoms; copies[row] becomes the row's number of atoms.
template <class Bonds, class Alike>
int merge_leaves(int count, Bonds bonds, Alike alike, int32_t* row, int32_t* copies) {
    const auto leaf = [bonds](int i) { return bonds.end(i) - bonds.begin(i) == 1; };
    int rows = 0;
    for (int i = 0; i < count; i++) {
        row[i] = -1;
        if (leaf(i) && bonds.source(bonds.begin(i)) != i) {
            const int neighbor = bonds.source(bonds.begin(i));
            for (int e = bonds.begin(neighbor); e < bonds.end(neighbor) && row[i] < 0; e++) {
                const int other = bonds.source(e);
                if (other < i && leaf(other) && bonds.source(bonds.begin(other)) == neighbor && copies[row[other]] < max_copies && alike(other, i)) {
                    row[i] = row[other];
                }
            }
        }
        if (row[i] < 0) copies[row[i] = rows++] = 0;
        copies[row[i]]++;
    }
    return rows;
}

}  // namespace molgcn
