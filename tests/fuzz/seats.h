// Threads in lockstep: a job runs in the thread of its seat, and the thread that gave it waits. So
// a heap sees several threads, and the same input always does the same. A thread starts with the
// first job for its seat, and ends when told to; or it lingers, and does further jobs among the
// destructors at its end, after the heap has released it. For concurrent threads see tests/stress.
#pragma once

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <semaphore>

namespace ts::fuzz {

class Seats {
 public:
  static constexpr unsigned count = 4;  // number 0 is the thread that gives the jobs

  // Call after the heap under test has made its own key: the destructors of older keys run first.
  static void make_key() {
    if (pthread_key_create(&key_, linger) != 0) std::abort();
  }

  Seats() = default;
  ~Seats() { leave_all(); }
  Seats(const Seats&) = delete;
  Seats& operator=(const Seats&) = delete;

  template <class Job>
  void run(unsigned number, Job& job) {
    if (number == 0) return job();
    Seat& seat = seats_[number - 1];
    if (seat.is == Seat::empty) start(seat);
    seat.job = [](void* argument) { (*static_cast<Job*>(argument))(); };
    seat.argument = &job;
    seat.take_turn();
  }

  bool is_lingering(unsigned number) const {
    return number != 0 && seats_[number - 1].is == Seat::lingering;
  }

  // Ends the thread; or lets it linger, if it can and has not yet.
  void leave(unsigned number, bool may_linger) {
    Seat& seat = seats_[number == 0 ? 0 : number - 1];
    if (seat.is == Seat::empty) return;
    seat.job = nullptr;
    if (may_linger && seat.is == Seat::taken) {
      seat.is = Seat::lingering;
      seat.take_turn();
      return;
    }
    seat.is = Seat::empty;
    seat.todo.release();
    pthread_join(seat.thread, nullptr);
  }

  void leave_all() {
    for (unsigned number = 1; number < count; ++number) leave(number, false);
  }

  static unsigned long threads() { return threads_; }
  static unsigned long lingered() { return lingered_; }

 private:
  struct Seat {
    enum { empty, taken, lingering } is = empty;
    pthread_t thread;
    void (*job)(void*) = nullptr;  // null: to leave the loop
    void* argument = nullptr;
    std::binary_semaphore todo{0};
    std::binary_semaphore done{0};

    void take_turn() {
      todo.release();
      done.acquire();
    }
  };

  static void serve(Seat& seat) {
    for (;;) {
      seat.todo.acquire();
      if (seat.job == nullptr) return;
      seat.job(seat.argument);
      seat.done.release();
    }
  }

  static void* sit(void* argument) {
    auto& seat = *static_cast<Seat*>(argument);
    serve(seat);
    if (seat.is == Seat::lingering && pthread_setspecific(key_, &seat) != 0) std::abort();
    return nullptr;
  }

  static void linger(void* argument) {
    auto& seat = *static_cast<Seat*>(argument);
    ++lingered_;
    seat.done.release();
    serve(seat);
  }

  static void start(Seat& seat) {
    if (pthread_create(&seat.thread, nullptr, sit, &seat) != 0) {
      std::perror("no thread for the test");
      std::exit(2);
    }
    seat.is = Seat::taken;
    ++threads_;
  }

  static inline pthread_key_t key_;
  static inline unsigned long threads_ = 0;
  static inline unsigned long lingered_ = 0;  // whose turn it is matters
  Seat seats_[count - 1];
};

}  // namespace ts::fuzz
