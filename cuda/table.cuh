// Where a tile's atoms and their neighbours are among its rows, and how many atoms each row stands for.
#pragma once
#include "tile.cuh"

// The table behind a tile's rows in its buffer. Offsets are those of rows for lanes with t = 0, in units of `offset_unit`.
struct Table {
    uint32* near;            // [tile_rows][2] by row: offsets of the first four neighbours, 16 bits each
    unsigned short* offset;  // [tile_rows] by atom
    unsigned char* atom;     // [tile_rows] by row
    unsigned short* copies;  // [tile_rows] by row, with MERGED_LEAVES: for how many atoms it stands, bf16

    __device__ explicit Table(const unsigned char* buffer) {
        near = reinterpret_cast<uint32*>(const_cast<unsigned char*>(buffer) + rows_bytes);
        offset = reinterpret_cast<unsigned short*>(near + 2 * tile_rows);
        atom = reinterpret_cast<unsigned char*>(offset + tile_rows);
        copies = reinterpret_cast<unsigned short*>(atom + tile_rows);
    }
};
template <bool large>
__device__ __forceinline__ int atom_at(const unsigned char* buffer, int row) {
    return large ? row : Table(buffer).atom[row];
}
// Returns where an atom's row begins, for `get` and `put`.
template <bool large>
__device__ __forceinline__ size_t begin_of(const unsigned char* buffer, int atom) {
    return large ? segment_offset(atom, 0) : size_t(Table(buffer).offset[atom]) * offset_unit;
}

// Returns how many atoms an atom of a batch with merged leaves stands for: as many as its only neighbour lists.
__device__ __noinline__ float copies_of(const Bonds& bonds, const Tile& tile, int atom) {
    const int begin = begin_of(bonds, tile, atom), end = end_of(bonds, tile, atom);
    const int neighbour = end - begin == 1 ? source_of(bonds, tile, begin) : -1;
    if (neighbour < 0 || neighbour >= tile.num_nodes) return 1.0f;
    const int last = end_of(bonds, tile, neighbour);
    int copies = 0;
#pragma unroll 4
    for (int bond = begin_of(bonds, tile, neighbour); bond < last; bond++) copies += source_of(bonds, tile, bond) == atom;
    return static_cast<float>(copies);
}
template <bool large>
__device__ __forceinline__ float copies_at(const unsigned char* buffer, const Bonds& bonds, const Tile& tile, int row) {
    if (!MERGED_LEAVES || (large && row >= tile.num_nodes)) return 1.0f;
    return large ? copies_of(bonds, tile, row) : number(static_cast<uint32>(Table(buffer).copies[row]) << 16);
}
template <bool large>
__device__ __forceinline__ int row_of(const unsigned char* buffer, int atom) {
    return large ? atom : Table(buffer).offset[atom] / (stride / offset_unit);
}
