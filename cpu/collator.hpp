// Threads that fill two slots (or pieces) in turn, one batch ahead of its reader.
#pragma once

#include <array>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "collate.hpp"

namespace molgcn {

// Fills slots with batches: batch b of a plan goes into slot b % 2. Worker w of W fills the w-th share of every batch, and no two workers
// write to the same memory. Target is Slot or Piece.
template <class Target>
class Collator {
  public:
    Collator(Packed packed, std::array<Target, 2> slots, int threads) : packed_(std::move(packed)), slots_(std::move(slots)), threads_(threads) {
        for (std::vector<Features>* all : {&packed_.atoms, &packed_.bonds})
            for (Features& features : *all) pad_table(features);
    }

    ~Collator() { stop(); }

    // Begins to fill the batches [first, last) of a plan. The plan must stay in place until the next start() or stop().
    void start(const Plan& plan, int64_t first, int64_t last) {
        stop();
        check(plan, first, last);
        plan_ = plan;
        next_ = handed_ = first;
        last_ = last;
        stopping_ = false;
        missing_.fill(threads_);
        for (int worker = 0; worker < threads_; ++worker) workers_.emplace_back([this, worker, first] { work(worker, first); });
    }

    // Returns the number of the next batch once it is filled, or -1 after the last. The batch handed out before is given back to be
    // refilled.
    int64_t next() {
        std::unique_lock lock(mutex_);
        handed_ = next_;
        freed_.notify_all();
        if (next_ == last_) return -1;
        filled_.wait(lock, [this] { return missing_[next_ % 2] == 0; });
        missing_[next_ % 2] = threads_;
        return next_++;
    }

    // Ends the filling and leaves the slots as they are.
    void stop() {
        {
            std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        freed_.notify_all();
        for (std::thread& worker : workers_) worker.join();
        workers_.clear();
        next_ = last_ = 0;
    }

  private:
    void pad_table(Features& features) {
        const int64_t columns = features.columns, stride = padded_columns(columns);
        std::vector<float>& padded = tables_.emplace_back(features.num_codes * stride);
        for (int64_t row = 0; row < features.num_codes; ++row)
            std::memcpy(padded.data() + row * stride, features.table + row * columns, columns * sizeof(float));
        features.table = padded.data();
    }

    void work(int worker, int64_t first) {
        for (int64_t number = first; number < last_; ++number) {
            {
                std::unique_lock lock(mutex_);  // slot number % 2 is free once batch number - 2 has been given back
                freed_.wait(lock, [&] { return stopping_ || number < handed_ + 2; });
                if (stopping_) return;
            }
            const int64_t begin = plan_.batch_ptr[number], graphs = plan_.batch_ptr[number + 1] - begin;
            const Target& slot = slots_[number % 2];
            fill_share(packed_, plan_, number, begin + graphs * worker / threads_, begin + graphs * (worker + 1) / threads_, slot);
            if (worker == 0) fill_rest(packed_, plan_, number, slot);
            std::lock_guard lock(mutex_);
            if (--missing_[number % 2] == 0) filled_.notify_all();
        }
    }

    void check(const Plan& plan, int64_t first, int64_t last) const {
        for (int64_t number = first; number < last; ++number) {
            const int64_t begin = plan.batch_ptr[number], end = plan.batch_ptr[number + 1];
            const Target& slot = slots_[number % 2];
            if (end - begin > slot.max_graphs || plan.node_ptr[end] - plan.node_ptr[begin] > slot.max_nodes ||
                plan.edge_ptr[end] - plan.edge_ptr[begin] > slot.max_edges ||
                plan.tile_starts[number + 1] - plan.tile_starts[number] - 1 > slot.max_tiles)
                throw std::invalid_argument("a batch of the plan is larger than its slot");
        }
    }

    Packed packed_;
    std::array<Target, 2> slots_;
    int threads_;
    std::vector<std::vector<float>> tables_;
    Plan plan_{};
    std::vector<std::thread> workers_;
    std::mutex mutex_;
    std::condition_variable freed_, filled_;
    std::array<int, 2> missing_{};         // workers that have not finished the slot's batch
    int64_t next_ = 0, handed_ = 0, last_ = 0;  // next batch to hand out; first batch not given back; end
    bool stopping_ = false;
};

}  // namespace molgcn
