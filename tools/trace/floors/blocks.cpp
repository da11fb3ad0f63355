// Walking through a plan in its recorded order; see blocks.h.
#include "trace/floors/blocks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "trace/format/error.h"

namespace ts::trace {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw Error(std::string{"the plan contradicts itself: "} + what +
              ". Make it again with `trace plan`.");
}

// Keeps which block each slot holds.
class Walk {
 public:
  explicit Walk(const plan::Image& image) : held_(image.slots, no_block) {}

  void on(std::uint64_t index, const plan::Operation& operation) {
    switch (static_cast<plan::Kind>(operation.kind)) {
      case plan::Kind::malloc:
      case plan::Kind::calloc:
      case plan::Kind::aligned:
        allocate(index, operation);
        break;
      case plan::Kind::realloc:
        resize(index, operation);
        break;
      case plan::Kind::free:
        release(operation);
        break;
      case plan::Kind::refused:
        break;
      default:
        return;  // no call
    }
    ++found_.calls;
  }

  Blocks finish() { return std::move(found_); }

 private:
  std::uint32_t& slot(const plan::Operation& operation) {
    if (operation.slot >= held_.size()) refuse("a slot's number is too high");
    return held_[operation.slot];
  }

  std::uint32_t add(std::uint64_t index, const plan::Operation& operation) {
    if (found_.blocks.size() >= no_block) {
      throw Error("the image has too many objects to plan addresses for. Choose another --image.");
    }
    Block block;
    block.begin = found_.calls;
    block.bytes = operation.size;
    block.operation = index;
    if (static_cast<plan::Kind>(operation.kind) == plan::Kind::aligned) {
      block.log2_alignment = std::max<std::uint8_t>(
          block.log2_alignment, static_cast<std::uint8_t>(operation.log2_alignment));
    }
    found_.blocks.push_back(block);
    return static_cast<std::uint32_t>(found_.blocks.size() - 1);
  }

  void allocate(std::uint64_t index, const plan::Operation& operation) {
    std::uint32_t& held = slot(operation);
    if (held != no_block) refuse("two objects are in one slot");
    held = add(index, operation);
  }

  void resize(std::uint64_t index, const plan::Operation& operation) {
    std::uint32_t& held = slot(operation);
    if (held == no_block) refuse("an object is resized that is not there");
    const std::uint32_t previous = held;
    held = add(index, operation);
    found_.blocks[held].previous = previous;
    found_.blocks[previous].end = found_.calls + 1;
  }

  void release(const plan::Operation& operation) {
    std::uint32_t& held = slot(operation);
    if (held == no_block) refuse("an object is freed that is not there");
    found_.blocks[held].end = found_.calls;
    held = no_block;
  }

  std::vector<std::uint32_t> held_;
  Blocks found_;
};

}  // namespace

Blocks blocks_of(const plan::View& view, const plan::Image& image) {
  Walk walk{image};
  std::vector<std::uint64_t> cursors(image.threads);
  const bool is_whole =
      plan::in_recorded_order(view, image, cursors.data(),
                              [&](std::uint32_t, std::uint64_t index,
                                  const plan::Operation& operation) { walk.on(index, operation); });
  if (!is_whole) refuse("its runs are not those of its threads");
  return walk.finish();
}

Bound lower_bound(const Blocks& blocks) {
  // Each block comes with its call, and goes with that of its free, or of its resize, in which the
  // next one comes: one call before its end.
  struct Change {
    std::uint64_t call;
    std::int64_t bytes;
  };
  std::vector<Change> changes;
  changes.reserve(2 * blocks.blocks.size());
  std::vector<bool> is_resized(blocks.blocks.size());
  for (const Block& block : blocks.blocks) {
    if (block.previous != no_block) is_resized[block.previous] = true;
  }
  for (std::size_t i = 0; i < blocks.blocks.size(); ++i) {
    const Block& block = blocks.blocks[i];
    const auto size = static_cast<std::int64_t>(block.size());
    changes.push_back({block.begin, size});
    if (block.end != never) changes.push_back({block.end - (is_resized[i] ? 1U : 0U), -size});
  }
  std::sort(changes.begin(), changes.end(),
            [](const Change& one, const Change& other) { return one.call < other.call; });
  Bound bound;
  std::int64_t live = 0;
  for (std::size_t i = 0; i < changes.size();) {
    const std::uint64_t call = changes[i].call;
    for (; i < changes.size() && changes[i].call == call; ++i) live += changes[i].bytes;
    if (live > static_cast<std::int64_t>(bound.bytes)) {
      bound = {static_cast<std::uint64_t>(live), call};
    }
  }
  return bound;
}

std::uint64_t robson_bytes(std::uint64_t live, std::uint64_t smallest, std::uint64_t largest) {
  if (smallest == 0) return 0;
  const double octaves = std::log2(static_cast<double>(largest) / static_cast<double>(smallest));
  const double worst = static_cast<double>(live) * (octaves / 2 + 1) -
                       static_cast<double>(largest) + static_cast<double>(smallest);
  return static_cast<std::uint64_t>(std::max(worst, static_cast<double>(live)));
}

}  // namespace ts::trace
