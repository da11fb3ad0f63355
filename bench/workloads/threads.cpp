// Stresses the usual work of servers: threads that each keep a working set of blocks of mixed sizes
// and replace them in random order. Every tenth goes to the next thread, which frees it. Leaves out
// threads that end. An operation is a free and a malloc; each block's two ends are written and
// read, so most pages of the one large block in a hundred stay untouched.
#include <atomic>

#include "programs/support/team.h"
#include "workload.h"

namespace {

using namespace ts::bench;

// A block that stores its own length: only its address goes to another thread.
struct Parcel {
  std::uint32_t bytes;
  std::uint32_t mark;
};

// A hand-over from one thread to the next: a thread that finds a block in it must free it.
struct alignas(128) Handover {
  std::atomic<Parcel*> parcel;
};

// Nine of ten requests are small, as in most programs.
std::size_t mixed_bytes(Random& random) {
  const std::size_t kind = pick(random, 100);
  if (kind < 90) return 16 + pick(random, 241);
  return kind < 99 ? 257 + pick(random, 3840) : 4097 + pick(random, 61440);
}

// Writes only the two ends, unlike take(): many large buffers are never filled.
Parcel* pack(std::size_t bytes, std::size_t number) {
  auto* const parcel = static_cast<Parcel*>(std::malloc(bytes));
  if (parcel == nullptr) fail("malloc returned null");
  *parcel = {static_cast<std::uint32_t>(bytes), mark_of(number)};
  reinterpret_cast<unsigned char*>(parcel)[bytes - 1] = mark_of(number);
  return parcel;
}

void unpack(Parcel* parcel) {
  if (parcel == nullptr) return;
  const auto* const address = reinterpret_cast<const unsigned char*>(parcel);
  if (address[parcel->bytes - 1] != parcel->mark) fail("the content of a live block changed");
  parcel->mark = 0;  // so that a second holder of the same block would be detected
  std::free(parcel);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Mixed sizes in each thread, some freed by the next thread."};
  const std::size_t threads = positive(arguments, "threads", 2, "threads");
  const std::size_t operations = positive(arguments, "operations", 5'000'000, "per thread");
  const std::size_t live = positive(arguments, "live", 2'000, "blocks that a thread keeps");
  const std::size_t handed = arguments.number("handed", 10, "in a hundred go to the next thread");
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  arguments.finish();
  if (handed > 100) arguments.fail("is a share of a hundred, not", "more", "handed");

  MappedArray<Parcel*> parcels{threads * live};
  MappedArray<Handover> handovers{threads};
  const double seconds = ts::test::run_team(threads, [&](std::uint32_t thread) {
    Random random{seed_of(seed, thread)};
    std::atomic<Parcel*>& to_next = handovers[(thread + 1) % threads].parcel;
    std::atomic<Parcel*>& to_me = handovers[thread].parcel;
    for (std::size_t i = 0; i < operations; ++i) {
      Parcel*& place = parcels[thread * live + pick(random, live)];
      // acq_rel: what one thread wrote into the block comes before the other thread's free
      unpack(pick(random, 100) < handed ? to_next.exchange(place, std::memory_order_acq_rel)
                                        : place);
      if (to_me.load(std::memory_order_relaxed) != nullptr)
        unpack(to_me.exchange(nullptr, std::memory_order_acq_rel));
      place = pack(mixed_bytes(random), i);
    }
  });
  for (Parcel* parcel : parcels) unpack(parcel);
  for (const Handover& handover : handovers)
    unpack(handover.parcel.load(std::memory_order_relaxed));
  report(threads * operations, seconds);
  return 0;
}
