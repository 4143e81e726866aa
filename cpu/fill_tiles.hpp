// Decides which molecules share a tile. The result is that of molgcn/data/tiles.py:fill_tiles, which documents the method.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace molgcn {

class TileFilling {
  public:
    static constexpr int most_nodes = 240;  // no sum of values exceeds 144 T^3, which has to fit into 32 bits

    explicit TileFilling(int tile_nodes) : tile_nodes_(tile_nodes), initial_(tile_nodes + 1), ends_(tile_nodes + 2) {
        for (int size = 0; size <= tile_nodes; ++size) initial_[size] = 16 * size * (8 * tile_nodes + size);
    }

    // Reorders order[0, count) tile after tile. Appends the first molecule of each tile, and then count, to tile_ptr.
    void plan(int64_t* order, int64_t count, const int64_t* sizes, std::vector<int32_t>& tile_ptr) {
        sort(order, count, sizes);
        fill();
        int32_t start = 0;
        for (const Pattern& pattern : best_plan_)
            for (int tile = 0; tile < pattern.tiles; ++tile) {
                tile_ptr.push_back(start);
                for (const auto& [size, molecules] : pattern.items)
                    for (int i = 0; i < molecules; ++i) order[start++] = sorted_[ends_[size] - counts_[size]--];
            }
        for (int64_t i = ends_[1]; i < count; ++i) {  // larger than a tile: alone, behind all others
            tile_ptr.push_back(start);
            order[start++] = sorted_[i];
        }
        tile_ptr.push_back(start);
    }

  private:
    struct Pattern {
        int tiles;
        std::vector<std::pair<int, int>> items;  // size, molecules
    };

    // Sorts by decreasing size, with equal sizes in their order and molecules larger than a tile last. ends_[size] is where the molecules
    // of that size end.
    void sort(const int64_t* order, int64_t count, const int64_t* sizes) {
        const int64_t large = tile_nodes_ + 1;  // one class for all sizes beyond a tile
        sorted_.resize(count);
        sizes_.resize(count);
        std::fill(ends_.begin(), ends_.end(), 0);
        for (int64_t i = 0; i < count; ++i) {
            sizes_[i] = static_cast<int32_t>(std::clamp(sizes[order[i]], int64_t{1}, large));
            ++ends_[sizes_[i]];
        }
        counts_ = ends_;
        int64_t next = 0;
        for (int64_t size = tile_nodes_; size >= 0; --size) {
            int64_t& end = ends_[size == 0 ? large : size];
            std::swap(end, next);
            next += end;
        }
        const int64_t first_large = ends_[large];
        for (int64_t i = 0; i < count; ++i) sorted_[ends_[sizes_[i]]++] = order[i];
        std::stable_sort(sorted_.begin() + first_large, sorted_.end(), [&](int64_t a, int64_t b) { return sizes[a] > sizes[b]; });
    }

    // Keeps the best of several passes. Each starts with the values that the one before left.
    void fill() {
        int64_t molecules = 0, atoms = 0, fewest = -1;
        for (int size = 1; size <= tile_nodes_; ++size) molecules += counts_[size], atoms += size * counts_[size];
        const int passes = molecules < 1024 ? 2 : 4;
        values_ = initial_;
        for (int pass = 0; pass < passes && (fewest < 0 || (fewest - 1) * tile_nodes_ >= atoms); ++pass) {
            const int64_t tiles = one_pass();
            if (fewest >= 0 && tiles >= fewest) continue;
            fewest = tiles;
            std::swap(plan_, best_plan_);
        }
    }

    int64_t one_pass() {
        stock_ = counts_;
        plan_.clear();
        int64_t tiles = 0;
        for (;;) {
            present_.clear();
            for (int size = 1; size <= tile_nodes_; ++size)
                if (stock_[size] > 0) present_.push_back(size);
            if (present_.empty()) return tiles;
            plan_.push_back(most_valuable());
            Pattern& pattern = plan_.back();
            int filled = 0;
            for (const auto& [size, molecules] : pattern.items) filled += size * molecules;
            for (const auto& [size, molecules] : pattern.items) {
                const int64_t used = int64_t{pattern.tiles} * molecules, all = 2 * counts_[size], worth = initial_[size] * tile_nodes_ / filled;
                stock_[size] -= used;
                values_[size] = static_cast<int32_t>((values_[size] * (all - used) + worth * used) / all);
            }
            tiles += pattern.tiles;
        }
    }

    // Returns the molecules in stock that together fit into a tile and are worth most, and how many tiles they fill.
    Pattern most_valuable() {
        const int rooms = tile_nodes_ + 1;
        reached_.resize((present_.size() + 1) * rooms);
        std::fill_n(reached_.begin(), rooms, 0);
        for (size_t i = 0; i < present_.size(); ++i) {
            const int size = present_[i], value = values_[size], most = available(size);
            const int32_t* __restrict before = reached_.data() + i * rooms;
            int32_t* __restrict after = reached_.data() + (i + 1) * rooms;
            std::copy_n(before, rooms, after);
            for (int molecules = 1; molecules <= most; ++molecules) {
                const int taken = molecules * size, worth = molecules * value;
                for (int room = taken; room < rooms; ++room) after[room] = std::max(after[room], before[room - taken] + worth);
            }
        }
        Pattern pattern{INT32_MAX, {}};
        int room = tile_nodes_;
        for (size_t i = present_.size(); i-- > 0;) {
            const int size = present_[i];
            const int32_t *before = reached_.data() + i * rooms, worth = before[rooms + room];
            int molecules = 0;
            while (before[room - molecules * size] + molecules * values_[size] != worth) ++molecules;
            if (molecules == 0) continue;
            room -= molecules * size;
            pattern.items.emplace_back(size, molecules);
            pattern.tiles = static_cast<int>(std::min<int64_t>(pattern.tiles, stock_[size] / molecules));
        }
        return pattern;
    }

    int available(int size) const { return static_cast<int>(std::min<int64_t>(stock_[size], tile_nodes_ / size)); }

    int tile_nodes_;
    std::vector<int32_t> initial_, values_;  // by size
    std::vector<int64_t> ends_, counts_, stock_;
    std::vector<int> present_;       // sizes in stock
    std::vector<int32_t> reached_;   // [sizes + 1][room + 1]: the most that the first sizes are worth in that room
    std::vector<Pattern> plan_, best_plan_;
    std::vector<int32_t> sizes_;     // in the order of `order`
    std::vector<int64_t> sorted_;
};

}  // namespace molgcn
