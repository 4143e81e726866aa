// Best fit by decreasing size: which molecules share a tile. The same result as molgcn/data/tiles.py:best_fit, which documents it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace molgcn {

class BestFit {
  public:
    explicit BestFit(int tile_nodes) : tile_nodes_(tile_nodes), open_(tile_nodes / 64 + 1), top_(tile_nodes + 1), ends_(tile_nodes + 2) {}

    // Reorders order[0, count) tile after tile and appends the first molecule of each tile, and count, to tile_ptr.
    void plan(int64_t* order, int64_t count, const int64_t* sizes, std::vector<int32_t>& tile_ptr) {
        sort(order, count, sizes);
        fill_.clear();
        below_.clear();
        std::fill(open_.begin(), open_.end(), 0);
        int64_t i = 0;
        for (int size = tile_nodes_; size >= 0; --size)
            for (; i < ends_[size]; ++i) tile_of_[i] = place(size);
        for (; i < count; ++i) {  // larger than a tile: alone, behind all others
            tile_of_[i] = static_cast<int32_t>(fill_.size());
            fill_.push_back(1);
        }
        int32_t start = 0;
        for (int32_t& molecules : fill_) {
            tile_ptr.push_back(start);
            start += molecules;
            molecules = start - molecules;  // from here on: where the tile's next molecule goes
        }
        tile_ptr.push_back(start);
        for (i = 0; i < count; ++i) order[fill_[tile_of_[i]]++] = sorted_[i];
    }

  private:
    // By decreasing size, equal sizes in their order; ends_[size] is where the molecules of that size end.
    void sort(const int64_t* order, int64_t count, const int64_t* sizes) {
        sorted_.resize(count);
        tile_of_.resize(count);
        sizes_.resize(count);
        std::fill(ends_.begin(), ends_.end(), 0);
        const int64_t large = tile_nodes_ + 1;  // one class for all sizes beyond a tile
        for (int64_t i = 0; i < count; ++i) {
            sizes_[i] = static_cast<int32_t>(std::min(sizes[order[i]], large));
            ++ends_[sizes_[i]];
        }
        int64_t next = 0;
        for (int64_t size = tile_nodes_; size >= -1; --size) {
            int64_t& place = ends_[size < 0 ? large : size];
            std::swap(place, next);
            next += place;
        }
        const int64_t first_large = ends_[large];
        for (int64_t i = 0; i < count; ++i) sorted_[ends_[sizes_[i]]++] = order[i];
        std::stable_sort(sorted_.begin() + first_large, sorted_.end(), [&](int64_t a, int64_t b) { return sizes[a] > sizes[b]; });
    }

    int32_t place(int size) {
        int room = fullest(size);
        int32_t tile;
        if (room < 0) {
            room = tile_nodes_;
            tile = static_cast<int32_t>(fill_.size());
            fill_.push_back(0);
            below_.push_back(-1);
        } else {
            tile = top_[room];
            top_[room] = below_[tile];
            if (top_[room] < 0) open_[room / 64] &= ~(uint64_t{1} << room % 64);
        }
        ++fill_[tile];
        const int left = room - size;
        const uint64_t bit = uint64_t{1} << left % 64;
        below_[tile] = open_[left / 64] & bit ? top_[left] : -1;
        top_[left] = tile;
        open_[left / 64] |= bit;
        return tile;
    }

    // The least number of free places, at least `size`, that some open tile has; -1 if none.
    int fullest(int size) const {
        size_t word = size / 64;
        uint64_t bits = open_[word] & (~uint64_t{0} << size % 64);
        while (bits == 0) {
            if (++word == open_.size()) return -1;
            bits = open_[word];
        }
        return static_cast<int>(word) * 64 + __builtin_ctzll(bits);
    }

    int tile_nodes_;
    std::vector<uint64_t> open_;     // bit r: a tile with r places left exists
    std::vector<int32_t> top_;       // by places left: the tile that came to it last
    std::vector<int32_t> below_;     // by tile: the tile that came to the same number of places before it
    std::vector<int32_t> fill_;      // by tile: molecules
    std::vector<int32_t> tile_of_;   // by place in sorted_
    std::vector<int32_t> sizes_;     // by place in order
    std::vector<int64_t> ends_, sorted_;
};

}  // namespace molgcn
