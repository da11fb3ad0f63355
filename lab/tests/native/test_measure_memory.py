"""Peak memory as `measure` reports it: exact for one process, independent of the launcher, and for
trees the sum of samples.
"""

import json
import subprocess
import sys

import pytest
from elftools.elf.elffile import ELFFile
from measured import measure

from tsmlab import paths

MIB = 1 << 20
# Resident memory of a small dynamic program besides its data, plus the kernel's error: its counters
# are kept per CPU that the process ran on, each up to a few hundred KiB off.
OVERHEAD = 5 * MIB

# hog MIB MS [children]: touches this much memory, starts children that inherit it untouched, waits.
HOG = """
int main(int argc, char** argv) {
  size_t size = (size_t)atol(argv[1]) << 20;
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  char* p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 1;
  for (size_t i = 0; i < size; i += 4096) p[i] = 1;
  int children = argc > 3 ? atoi(argv[3]) : 0;
  for (int i = 0; i < children; ++i) if (fork() == 0) { usleep(1000 * atoi(argv[2])); _exit(0); }
  usleep(1000 * atoi(argv[2]));
  while (wait(0) > 0) {}
  return 0;
}
"""

# herd MS MIB...: a child for each size, which all hold their memory for this long at the same time.
HERD = """
int main(int argc, char** argv) {
  int ready[2], go[2];
  char byte = 0;
  if (pipe(ready) || pipe(go)) return 1;
  for (int i = 2; i < argc; ++i) {
    if (fork() == 0) {
      size_t size = (size_t)atol(argv[i]) << 20;
      memset(malloc(size), 1, size);
      close(go[1]);
      if (write(ready[1], &byte, 1) != 1) _exit(1);
      _exit(read(go[0], &byte, 1) != 0);
    }
  }
  for (int i = 2; i < argc; ++i) if (read(ready[0], &byte, 1) != 1) return 1;
  usleep(1000 * atoi(argv[1]));
  close(go[1]);
  while (wait(0) > 0) {}
  return 0;
}
"""


@pytest.fixture
def hog(build):
    return build("hog.c", HOG)


@pytest.mark.parametrize("size", [16, 100, 400])
@pytest.mark.parametrize("sample_ms", ["0", "10"])
def test_peak_of_one_process(hog, size, sample_ms):
    answer = measure([hog, str(size), "0"], "--sample-ms", sample_ms)
    assert size * MIB - OVERHEAD < answer["peak_rss_bytes"] < size * MIB + OVERHEAD
    assert answer["minor_faults"] >= size * MIB // 4096


def test_memory_that_was_given_back_counts(build):
    source = """
    int main(void) {
      size_t size = 64 << 20;
      char* p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      memset(p, 1, size);
      return munmap(p, size);
    }
    """
    answer = measure([build("giveback.c", source)], "--sample-ms", "0")
    assert 64 * MIB - OVERHEAD < answer["peak_rss_bytes"] < 64 * MIB + OVERHEAD


# The trap that `measure` avoids: for a program started directly from Python, the kernel reports at
# least Python's own peak.
LAUNCHER = """
import json, os, resource, subprocess, sys
held = bytearray(int(sys.argv[1]) << 20)
for i in range(0, len(held), 4096):
    held[i] = 1
line = subprocess.run([sys.argv[2], "--", "/bin/true"], stdout=subprocess.PIPE, check=True).stdout
child = os.posix_spawn("/bin/true", ["true"], {})
direct = os.wait4(child, 0)[2].ru_maxrss << 10
print(json.dumps([json.loads(line)["peak_rss_bytes"], direct]))
"""


def test_peak_does_not_depend_on_the_size_of_the_launcher():
    def launch(held_mib):
        command = [sys.executable, "-c", LAUNCHER, str(held_mib), str(paths.tool("measure"))]
        through_measure, direct = json.loads(
            subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout
        )
        return through_measure, direct

    small, _ = launch(10)
    large, direct_from_large = launch(1000)
    assert direct_from_large > 1000 * MIB, "the control shows no trap to avoid"
    assert abs(large - small) < MIB
    assert large < OVERHEAD


def test_the_program_is_static():
    with paths.tool("measure").open("rb") as file:
        kinds = {segment["p_type"] for segment in ELFFile(file).iter_segments()}
    assert "PT_INTERP" not in kinds


class TestTrees:
    def test_the_largest_process_is_told_from_the_sum(self, build):
        answer = measure([build("herd.c", HERD), "1000", "40", "60"])
        assert answer["exit_code"] == 0
        assert 60 * MIB - OVERHEAD < answer["peak_rss_bytes"] < 60 * MIB + OVERHEAD
        assert 100 * MIB - OVERHEAD < answer["tree_peak_rss_bytes"] < 100 * MIB + 3 * OVERHEAD
        assert 100 * MIB - OVERHEAD < answer["tree_peak_pss_bytes"] < 100 * MIB + 3 * OVERHEAD

    def test_shared_memory_counts_once_in_pss(self, hog):
        answer = measure([hog, "50", "1000", "2"])
        assert 50 * MIB - OVERHEAD < answer["peak_rss_bytes"] < 50 * MIB + OVERHEAD
        assert 150 * MIB - OVERHEAD < answer["tree_peak_rss_bytes"] < 150 * MIB + 3 * OVERHEAD
        assert 50 * MIB - OVERHEAD < answer["tree_peak_pss_bytes"] < 50 * MIB + 3 * OVERHEAD

    def test_orphans_of_another_session_are_of_the_tree(self, hog):
        answer = measure(["sh", "-c", f"setsid sh -c '{hog} 70 300 &' & sleep 0.6"])
        assert 70 * MIB - OVERHEAD < answer["peak_rss_bytes"] < 70 * MIB + OVERHEAD
        assert answer["tree_peak_rss_bytes"] > 70 * MIB - OVERHEAD
        assert answer["left_behind"] == 0

    def test_children_of_threads_are_found(self, build, hog):
        source = """
        static void* start(void* command) { return (void*)(long)system(command); }
        int main(int argc, char** argv) {
          pthread_t thread;
          pthread_create(&thread, 0, start, argv[argc - 1]);
          return pthread_join(thread, 0);
        }
        """
        program = build("threads.c", source, "-pthread")
        answer = measure([program, f"exec {hog} 30 300"])
        assert answer["tree_peak_rss_bytes"] > 30 * MIB


class TestSampling:
    def test_sampling_off_on_and_at_an_interval(self, hog):
        answer = measure(["sleep", "0.1"], "--sample-ms", "0")
        assert (answer["tree_peak_rss_bytes"], answer["tree_peak_pss_bytes"]) == (None, None)
        assert (answer["samples"], answer["sampling_ns"]) == (0, 0)
        answer = measure([hog, "20", "400"])
        assert answer["samples"] >= 1
        assert answer["tree_peak_pss_bytes"] > 0
        assert answer["sampling_ns"] > 0
        assert answer["peak_rss_bytes"] >= 20 * MIB
        answer = measure(["sleep", "0.5"], "--sample-ms", "200")
        assert 1 <= answer["samples"] <= 4  # after 1 ms, then no more often than every 200 ms
