// Threads for tests: one that performs one action at a time when told to, so that a test decides
// which thread does what and in which order; and many that do the same.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ts::testing {

class Worker {
 public:
  Worker() : thread_{[this] { work(); }} {}
  // Ends the thread, and with it all that heaps keep for it.
  ~Worker() {
    start(nullptr);
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Has the thread do something, and waits until it is done.
  void run(const std::function<void()>& job) {
    start(&job);
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return !has_job_; });
  }

 private:
  void start(const std::function<void()>* job) {
    {
      const std::lock_guard guard{mutex_};
      job_ = job;
      has_job_ = true;
    }
    changed_.notify_all();
  }

  void work() {
    std::unique_lock lock{mutex_};
    for (;;) {
      changed_.wait(lock, [this] { return has_job_; });
      if (job_ == nullptr) return;
      lock.unlock();
      (*job_)();
      lock.lock();
      has_job_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_job_ = false;
  const std::function<void()>* job_ = nullptr;  // null: end
  std::thread thread_;
};

// Waits for something that must happen.
template <class Condition>
void await(const Condition& holds) {
  while (!holds()) std::this_thread::yield();
}

// Runs work(number) in this many threads, and joins them.
template <class Work>
void run_threads(unsigned count, Work work) {
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < count; ++number) threads.emplace_back(work, number);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ts::testing
