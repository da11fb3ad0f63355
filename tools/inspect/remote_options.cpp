// See remote_options.h.
#include "inspect/remote_options.h"

namespace ts {
namespace {

OptionBits& word(std::size_t i) { return reinterpret_cast<OptionBits*>(&current_options)[i]; }

}  // namespace

RemoteOptions::RemoteOptions(Process& process, const EngineImage& image)
    : process_{process}, image_{image} {
  expect_readable(process, process.read(image.options(), before_));
  for (std::size_t i = 0; i < words; ++i) word(i).bits.store(before_[i], std::memory_order_relaxed);
}

void RemoteOptions::write() {
  StoppedThreads threads{process_};
  expect_stopped(process_, threads, threads.stop());
  const bool is_written = write_words(threads);
  threads.detach_all();
  expect_readable(process_, is_written);
}

bool RemoteOptions::write_words(const StoppedThreads& threads) {
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t value = word(i).bits.load(std::memory_order_relaxed);
    if (value == before_[i]) continue;
    if (!threads.write(image_.options() + i * sizeof value, &value, sizeof value)) return false;
    before_[i] = value;
  }
  const std::uint32_t were_set = 1;
  const auto number = static_cast<std::uint64_t>(process_.status("NSpid:"));  // as it sees itself
  return threads.write(image_.options_were_set(), &were_set, sizeof were_set) &&
         threads.write(image_.attention(), &number, sizeof number);
}

}  // namespace ts
