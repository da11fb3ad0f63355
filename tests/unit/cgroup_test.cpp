// cgroups as files under a root directory that the test makes: each kind of hierarchy, and each
// kind of damage.
#include "os/cgroup.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace ts::testing {
namespace {

namespace fs = std::filesystem;
using os::Cgroup;

constexpr std::size_t mib = 1 << 20;

class Cgroups : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("tsmalloc-groups-" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream{file} << text;
  }
  void be_in(const std::string& lines) { write("proc/self/cgroup", lines); }
  // A file of a version 2 cgroup, and of a version 1 cgroup.
  void write_v2(const std::string& path, std::size_t value) {
    write("sys/fs/cgroup/" + path, std::to_string(value) + "\n");
  }
  void write_v1(const std::string& path, std::size_t value) {
    write("sys/fs/cgroup/memory/" + path, std::to_string(value) + "\n");
  }
  // The limit found, or 0.
  std::size_t limit() {
    errno = 7;
    const bool found = os::find_cgroup(root_.c_str(), group_);
    EXPECT_EQ(errno, 7);
    EXPECT_EQ(found, group_.limit_bytes != 0);
    return group_.limit_bytes;
  }
  std::string folder() const {
    return fs::relative(group_.folder, root_ / "sys/fs/cgroup").string();
  }

  fs::path root_;
  Cgroup group_;
};

TEST_F(Cgroups, OfVersion2HaveTheSmallestLimitOfMaxAndHigh) {
  be_in("0::/app\n");
  write("sys/fs/cgroup/app/memory.max", "max\n");
  write("sys/fs/cgroup/app/memory.high", "max\n");
  EXPECT_EQ(limit(), 0U);
  write_v2("app/memory.max", 300 * mib);
  EXPECT_EQ(limit(), 300 * mib);
  write_v2("app/memory.high", 200 * mib);
  EXPECT_EQ(limit(), 200 * mib);
  EXPECT_FALSE(group_.is_version_1);
  write_v2("app/memory.current", 123 * mib);
  EXPECT_EQ(os::used_by(group_, 200 * mib), 123 * mib);
}

TEST_F(Cgroups, TheSmallestLimitOnTheWayUpCountsWithTheUseOfItsGroup) {
  be_in("0::/pods.slice/pod7/container\n");
  write_v2("pods.slice/pod7/container/memory.max", 500 * mib);
  write_v2("pods.slice/pod7/container/memory.current", 1 * mib);
  write_v2("pods.slice/pod7/memory.max", 400 * mib);
  write_v2("pods.slice/pod7/memory.current", 350 * mib);
  write_v2("pods.slice/memory.max", 4000 * mib);
  EXPECT_EQ(limit(), 400 * mib);
  EXPECT_EQ(folder(), "pods.slice/pod7");
  EXPECT_EQ(os::used_by(group_, SIZE_MAX), 350 * mib);
}

TEST_F(Cgroups, OfVersion1HaveOneLimit) {
  be_in("12:pids:/x\n5:cpu,memory,io:/docker/abc\n1:name=systemd:/x\n");
  write_v1("docker/abc/memory.limit_in_bytes", 256 * mib);
  write_v1("docker/memory.limit_in_bytes", 9223372036854771712U);
  write_v1("memory.limit_in_bytes", 9223372036854771712U);
  write_v1("docker/abc/memory.usage_in_bytes", 77 * mib);
  EXPECT_EQ(limit(), 256 * mib);
  EXPECT_TRUE(group_.is_version_1);
  EXPECT_EQ(folder(), "memory/docker/abc");
  EXPECT_EQ(os::used_by(group_, SIZE_MAX), 77 * mib);
}

TEST_F(Cgroups, WithoutALimitOfVersion1ThereIsNone) {
  be_in("4:memory:/\n");
  write_v1("memory.limit_in_bytes", 9223372036854771712U);
  EXPECT_EQ(limit(), 0U);
}

// The memory controller belongs to version 1; version 2 is also mounted, without controllers.
TEST_F(Cgroups, OfAHybridTreeAreVersion1s) {
  be_in("0::/user.slice\n4:memory:/user.slice\n");
  write_v1("user.slice/memory.limit_in_bytes", 64 * mib);
  write_v2("user.slice/memory.max", 32 * mib);
  EXPECT_EQ(limit(), 64 * mib);
  be_in("4:memory:/user.slice\n0::/user.slice\n");
  EXPECT_EQ(limit(), 64 * mib);
}

TEST_F(Cgroups, ControllersAreWholeWords) {
  be_in("4:memoryless,hugetlb-memory:/a\n0::/b\n");
  write_v1("a/memory.limit_in_bytes", 64 * mib);
  write_v2("b/memory.max", 32 * mib);
  EXPECT_EQ(limit(), 32 * mib);
}

// In a cgroup namespace the root is "/", and has the files of a cgroup.
TEST_F(Cgroups, OfANamespaceAreAtItsRoot) {
  be_in("0::/\n");
  write_v2("memory.max", 128 * mib);
  EXPECT_EQ(limit(), 128 * mib);
  be_in("0::/../../elsewhere\n");
  write("sys/memory.max", "1048576\n");
  EXPECT_EQ(limit(), 128 * mib) << "nothing outside is looked at";
}

// A container without a cgroup namespace: the path is the host's, and the container's own cgroup is
// mounted.
TEST_F(Cgroups, OfAContainerWithTheHostsPathAreAtTheRoot) {
  be_in("0::/system.slice/docker-0123.scope\n");
  write_v2("memory.max", 96 * mib);
  EXPECT_EQ(limit(), 96 * mib);
  EXPECT_EQ(folder(), ".");
}

TEST_F(Cgroups, ThatCannotBeReadAreNone) {
  EXPECT_EQ(limit(), 0U) << "no /proc";
  be_in("0::/gone (deleted)\n");
  EXPECT_EQ(limit(), 0U) << "no files";
  write_v2("gone/memory.max", 5);
  EXPECT_EQ(limit(), 0U) << "of another name";
  be_in("0::/a\n");
  fs::create_directories(root_ / "sys/fs/cgroup/a/memory.max");
  EXPECT_EQ(limit(), 0U) << "a folder";
}

TEST_F(Cgroups, MalformedFilesAreNone) {
  for (const char* const lines : {"", "\n", "0", "0:", "0::", ":::", "\n\n0:", "memory", "4:memory",
                                  "no line at all\n", "::\n"}) {
    be_in(lines);
    EXPECT_EQ(limit(), 0U) << lines;
  }
  be_in("0::/a\n");
  for (const char* const text : {"", "\n", "-1\n", "12x\n", "1e9\n", "0\n", "MAX\n", "0x100000\n",
                                 "99999999999999999999999999\n", " 4096\n"}) {
    write("sys/fs/cgroup/a/memory.max", text);
    EXPECT_EQ(limit(), 0U) << text;
  }
  write("sys/fs/cgroup/a/memory.max", "4194304");  // without a newline
  EXPECT_EQ(limit(), 4 * mib);
}

TEST_F(Cgroups, LongPathsAreNone) {
  std::string path;
  for (int i = 0; i < 50; ++i) path += "/a-folder-of-22-letters";
  be_in("0::" + path + "\n");
  EXPECT_EQ(limit(), 0U);
  be_in("0::" + std::string(20000, 'a') + "\n");
  EXPECT_EQ(limit(), 0U);
}

TEST_F(Cgroups, AreFoundAsTheyAreNow) {
  be_in("0::/app\n");
  for (const std::size_t now : {512 * mib, 256 * mib, 1024 * mib}) {
    write_v2("app/memory.max", now);
    EXPECT_EQ(limit(), now);
  }
  be_in("0::/app/moved\n");
  write_v2("app/moved/memory.max", 64 * mib);
  EXPECT_EQ(limit(), 64 * mib);
}

TEST_F(Cgroups, FilePagesThatGoFirstAreNotUsed) {
  be_in("0::/app\n");
  write_v2("app/memory.max", 512 * mib);
  write_v2("app/memory.current", 400 * mib);
  write("sys/fs/cgroup/app/memory.stat",
        "anon 100\nfile 9\nworkingset_inactive_file 5\ninactive_file 104857600\nactive_file 7\n");
  ASSERT_EQ(limit(), 512 * mib);
  EXPECT_EQ(os::used_by(group_, 399 * mib), 300 * mib);
  EXPECT_EQ(os::used_by(group_, 400 * mib), 400 * mib) << "the second file is not needed";
  write("sys/fs/cgroup/app/memory.stat", "inactive_file 999999999999\n");
  EXPECT_EQ(os::used_by(group_, 0), 400 * mib) << "more than all is no number";
  fs::remove(root_ / "sys/fs/cgroup/app/memory.stat");
  EXPECT_EQ(os::used_by(group_, 0), 400 * mib);
  fs::remove(root_ / "sys/fs/cgroup/app/memory.current");
  EXPECT_EQ(os::used_by(group_, 0), 0U);
}

TEST_F(Cgroups, FilePagesOfVersion1AreThoseOfTheWholeTree) {
  be_in("4:memory:/app\n");
  write_v1("app/memory.limit_in_bytes", 512 * mib);
  write_v1("app/memory.usage_in_bytes", 400 * mib);
  write("sys/fs/cgroup/memory/app/memory.stat",
        "inactive_file 1\nhierarchical_memory_limit 5\ntotal_inactive_file 52428800\n");
  ASSERT_EQ(limit(), 512 * mib);
  EXPECT_EQ(os::used_by(group_, 0), 350 * mib);
}

TEST(MachineMemory, IsWhatTheSystemHas) {
  const std::size_t bytes = os::machine_memory();
  EXPECT_GE(bytes, 64 * mib);
  EXPECT_EQ(os::machine_memory(), bytes);
}

}  // namespace
}  // namespace ts::testing
