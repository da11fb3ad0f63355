// The allocator that the classic heaps replace: one list of the free blocks, linked through the
// blocks in address order. malloc searches it from the beginning for a block, free for the
// neighbours (the source reports' heaps, and Kernighan and Ritchie's). It has the same fits and the
// same block sizes, so that only the search differs. It never grows.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "classic/block.h"

namespace ts::bench {

// The initial state: the blocks of another heap, in separate memory with the same distances.
class LayoutCopy {
 public:
  LayoutCopy(std::uintptr_t begin, std::uintptr_t end) : begin_{begin}, bytes_{end - begin} {
    void* memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("no memory for the linear list");
      std::exit(2);
    }
    memory_ = static_cast<std::byte*>(memory);
  }
  ~LayoutCopy() { ::munmap(memory_, bytes_); }
  LayoutCopy(const LayoutCopy&) = delete;
  LayoutCopy& operator=(const LayoutCopy&) = delete;

  std::byte* copy_of(const void* original) const {
    return memory_ + (address_of(original) - begin_);
  }
  // The offset of an address of the copy in the layout, the same as that of its original.
  std::uintptr_t offset(const void* copy) const { return address_of(copy) - address_of(memory_); }

 private:
  std::uintptr_t begin_;
  std::size_t bytes_;
  std::byte* memory_;
};

enum class Fit { first, best, worst };

template <Fit fit>
class LinearList {
 public:
  // Blocks must come in address order; `block` is where the size is stored.
  void add_free(std::byte* block, std::size_t bytes) {
    Node* node = at(block, bytes);
    *end_ = node;
    end_ = &node->next;
  }
  void add_used(std::byte* block, std::size_t bytes) { at(block, bytes); }

  void* allocate(std::size_t bytes) {
    const std::size_t wanted = classic::block_bytes_for(bytes);
    Node** const link = find(wanted);
    if (link == nullptr) return nullptr;
    Node* const node = *link;
    if (node->bytes - wanted >= classic::min_block_bytes) {
      Node* const rest = at(node->begin() + wanted, node->bytes - wanted);
      rest->next = node->next;
      *link = rest;
      node->bytes = wanted;
    } else {
      *link = node->next;
    }
    return node->begin() + classic::tag_bytes;
  }

  void release(void* payload) {
    auto* const node =
        reinterpret_cast<Node*>(static_cast<std::byte*>(payload) - classic::tag_bytes);
    Node* before = nullptr;
    Node* after = first_;
    while (after != nullptr && after < node) {
      before = after;
      after = after->next;
    }
    node->next = after;
    (before != nullptr ? before->next : first_) = node;
    absorb_next(node);
    if (before != nullptr) absorb_next(before);
  }

 private:
  struct Node {
    std::size_t bytes;  // of the block, in use or not
    Node* next;         // only while it is free

    std::byte* begin() { return reinterpret_cast<std::byte*>(this); }
  };

  static Node* at(std::byte* block, std::size_t bytes) {
    auto* const node = reinterpret_cast<Node*>(block);
    node->bytes = bytes;
    node->next = nullptr;
    return node;
  }

  static void absorb_next(Node* node) {
    Node* const next = node->next;
    if (next == nullptr || node->begin() + node->bytes != next->begin()) return;
    node->bytes += next->bytes;
    node->next = next->next;
  }

  // The link to the block that the fit chooses; null if none is large enough. Addresses ascend, so
  // the earlier of two equals is the lower one, and first fit can stop at the first match.
  Node** find(std::size_t wanted) {
    Node** found = nullptr;
    for (Node** link = &first_; *link != nullptr; link = &(*link)->next) {
      const std::size_t bytes = (*link)->bytes;
      if (bytes < wanted) continue;
      if (fit == Fit::first) return link;
      if (found == nullptr ||
          (fit == Fit::best ? bytes < (*found)->bytes : bytes > (*found)->bytes))
        found = link;
    }
    return found;
  }

  Node* first_ = nullptr;
  Node** end_ = &first_;  // only while blocks are added
};

}  // namespace ts::bench
