// The free nodes of each thread of a lock-free heap: a stash per thread, found through the thread's
// slot. When the thread ends, its nodes return to the pool, and a later thread reuses its state. A
// thread without a state uses a stash that exists for one call only.
//
//   WithStash -> this_thread -> attach_slow -> idle_or_new     on the first call of a thread
//
// States are never unmapped while the heap exists, so the list of all only grows (no ABA). A thread
// owns a state from its exchange of `in_use` (acquire), which sees the stash that the last owner
// left by its store in retire() (release).
#pragma once

#include <new>

#include "base/bits.h"
#include "base/busy_mark.h"
#include "classic/node_pool.h"
#include "classic/thread_slots.h"
#include "os/os.h"

namespace ts::classic {

class NodeStashes {
 public:
  constexpr explicit NodeStashes(NodePool& pool) noexcept : pool_{pool}, slots_{this, retire} {}

 private:
  struct ThreadState {
    static std::size_t mapped_bytes() noexcept {
      return align_up(sizeof(ThreadState), os::page_bytes());
    }

    NodePool::Stash stash;                 // own
    std::atomic<bool> busy{false};         // own; read in the child of a fork
    std::atomic<std::uint32_t> in_use{1};  // any: claimed by exchange, so only one thread has it
    ThreadState* next = nullptr;           // const after it was pushed
  };

 public:
  // The stash to use: the thread's own, or an empty one for this call only.
  class WithStash {
   public:
    explicit WithStash(NodeStashes& stashes) noexcept
        : stashes_{stashes},
          state_{stashes.this_thread()},
          mark_{state_ != nullptr ? state_->busy : never_read_} {}
    ~WithStash() {
      if (state_ == nullptr) {
        stashes_.pool_.share_all(temporary_);
      } else {
        stashes_.pool_.balance(state_->stash);
      }
    }
    WithStash(const WithStash&) = delete;
    WithStash& operator=(const WithStash&) = delete;
    NodePool::Stash& stash() const noexcept {
      return state_ != nullptr ? state_->stash : temporary_;
    }

   private:
    NodeStashes& stashes_;
    ThreadState* state_;
    std::atomic<bool> never_read_{false};
    BusyMark mark_;
    mutable NodePool::Stash temporary_{};
  };

  // Unmaps all states; the caller unmaps the pool's nodes. No thread may be inside.
  void destroy() noexcept {
    for (ThreadState* state = all_.load(std::memory_order_acquire); state != nullptr;) {
      ThreadState* const next = state->next;
      os::unmap_unused(state, ThreadState::mapped_bytes());
      state = next;
    }
  }

  // Forgets the threads' slots; no thread may be inside.
  void close() noexcept { slots_.close(); }

  // In the child of a fork: the nodes of other threads return to the pool, except those of threads
  // caught in mid-call, which are lost.
  void fork_child() noexcept {
    const void* const mine = slots_.get();
    for (ThreadState* state = all_.load(std::memory_order_acquire); state != nullptr;
         state = state->next) {
      if (state == mine) continue;
      if (state->busy.load(std::memory_order_relaxed)) state->stash = {};
      state->busy.store(false, std::memory_order_relaxed);
      pool_.share_all(state->stash);
      state->in_use.store(0, std::memory_order_relaxed);
    }
  }

 private:
  ThreadState* this_thread() noexcept {
    void* const mine = slots_.get();
    return mine != nullptr ? static_cast<ThreadState*>(mine) : attach_slow();
  }

  [[gnu::noinline]] ThreadState* attach_slow() noexcept {
    if (!slots_.make_ready()) return nullptr;
    if (void* mine = slots_.get()) return static_cast<ThreadState*>(mine);
    ThreadState* const state = idle_or_new();
    if (state != nullptr) slots_.set(state);
    return state;
  }

  ThreadState* idle_or_new() noexcept {
    for (ThreadState* state = all_.load(std::memory_order_acquire); state != nullptr;
         state = state->next) {
      // acquire: pairs with the release in retire(); sees the stash that the last thread left
      if (state->in_use.load(std::memory_order_relaxed) == 0 &&
          state->in_use.exchange(1, std::memory_order_acquire) == 0)
        return state;
    }
    void* const memory = os::map(ThreadState::mapped_bytes());
    if (memory == nullptr) return nullptr;
    auto* const state = new (memory) ThreadState{};
    state->next = all_.load(std::memory_order_relaxed);
    while (!all_.compare_exchange_weak(state->next, state, std::memory_order_release,
                                       std::memory_order_relaxed)) {
    }
    return state;
  }

  static void retire(void* self, void* thread_state) noexcept {
    auto* const stashes = static_cast<NodeStashes*>(self);
    auto* const state = static_cast<ThreadState*>(thread_state);
    stashes->pool_.share_all(state->stash);
    state->in_use.store(0, std::memory_order_release);
  }

  NodePool& pool_;
  ThreadSlots slots_;
  std::atomic<ThreadState*> all_{nullptr};  // push only
};

}  // namespace ts::classic
