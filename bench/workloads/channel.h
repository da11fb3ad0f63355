// A bounded queue of batches of blocks between threads, in memory of its own. It blocks instead of
// spinning: with more threads than cores, a spinning consumer would dominate the measurement. A
// batch is large enough that its lock does not matter.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "workload.h"

namespace ts::bench {

// Up to `capacity` blocks, in the owner's memory.
struct Batch {
  Block* blocks;
  std::size_t count;
  std::size_t capacity;

  bool full() const { return count == capacity; }
  void add(const Block& block) { blocks[count++] = block; }
};

class Channel {
 public:
  // `ring` has room for `depth` batches of `batch_blocks`.
  void begin(Block* ring, std::size_t depth, std::size_t batch_blocks, std::size_t senders) {
    ring_ = ring;
    depth_ = depth;
    batch_blocks_ = batch_blocks;
    senders_ = senders;
  }

  // Waits for room, copies the batch and empties it.
  void send(Batch& batch) {
    std::unique_lock guard{mutex_};
    room_.wait(guard, [&] { return sent_ - received_ < depth_; });
    Block* const place = ring_ + sent_ % depth_ * batch_blocks_;
    std::copy_n(batch.blocks, batch.count, place);
    // No block: marks the end of a batch that is not full.
    if (batch.count < batch_blocks_) place[batch.count] = Block{};
    batch.count = 0;
    ++sent_;
    guard.unlock();
    something_.notify_one();
  }

  // Each sender calls this last.
  void end() {
    const std::lock_guard guard{mutex_};
    if (--senders_ == 0) something_.notify_all();
  }

  // Waits for a batch; false if there will be no more.
  bool receive(Batch& batch) {
    std::unique_lock guard{mutex_};
    something_.wait(guard, [&] { return sent_ != received_ || senders_ == 0; });
    if (sent_ == received_) return false;
    const Block* const place = ring_ + received_ % depth_ * batch_blocks_;
    batch.count = 0;
    while (batch.count < batch_blocks_ && place[batch.count].address != nullptr)
      batch.add(place[batch.count]);
    ++received_;
    guard.unlock();
    room_.notify_one();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable something_;
  Block* ring_ = nullptr;
  std::size_t depth_ = 0;
  std::size_t batch_blocks_ = 0;
  std::size_t senders_ = 0;
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
};

}  // namespace ts::bench
