// The codings under the columns, one by one.
#include <gtest/gtest.h>

#include <random>

#include "samples.h"
#include "trace/format/bytes.h"
#include "trace/format/columns.h"
#include "trace/format/compression.h"
#include "trace/format/layout.h"
#include "trace/format/numbers.h"

namespace ts::trace::testing {
namespace {

std::vector<std::uint64_t> telling_numbers() {
  std::vector<std::uint64_t> numbers{0};
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    numbers.insert(numbers.end(), {power - 1, power, power + 1, ~power, 0 - power});
  }
  std::mt19937_64 random{7};
  for (int i = 0; i < 10'000; ++i) numbers.push_back(random() >> (random() % 64));
  return numbers;
}

template <typename Writer, typename Reader>
void expect_round_trip(Writer writer) {
  const auto numbers = telling_numbers();
  for (const std::uint64_t number : numbers) writer.add(number);
  if constexpr (requires { writer.end(); }) writer.end();
  Reader reader{writer.heads(), writer.rest()};
  for (const std::uint64_t number : numbers) ASSERT_EQ(reader.next(), number);
  EXPECT_TRUE(reader.is_used_up());
  EXPECT_FALSE(reader.failed());
  reader.next();
  EXPECT_TRUE(reader.failed());
}

TEST(TraceCodings, NumbersComeBack) {
  expect_round_trip<RepeatedWriter, RepeatedReader>({});
  expect_round_trip<SpreadWriter, SpreadReader>({});
}

TEST(TraceCodings, ASpreadNumberTakesAByteAndTheBitsBelowItsTopThree) {
  SpreadWriter writer;
  for (int i = 0; i < 800; ++i) writer.add(1'000 + static_cast<std::uint64_t>(i % 8));
  writer.end();
  EXPECT_EQ(writer.heads().size(), 800U);
  EXPECT_EQ(writer.rest().size(), 700U);  // 10 bits, of which 3 are in the head
}

TEST(TraceCodings, WhatNoWriterWritesIsNoticed) {
  const Bytes too_large_head{255};
  SpreadReader spread{too_large_head, {}};
  spread.next();
  EXPECT_TRUE(spread.failed());

  const Bytes left_over{9};
  SpreadReader unused{{}, left_over};
  EXPECT_FALSE(unused.is_used_up());

  const Bytes head{0xff};
  const Bytes more_than_64_bits{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
  RepeatedReader repeated{head, more_than_64_bits};
  repeated.next();
  EXPECT_TRUE(repeated.failed());

  const Bytes endless(20, 0xff);
  ByteReader reader{endless};
  reader.number();
  EXPECT_TRUE(reader.failed());
}

TEST(TraceCodings, ChecksumsAreThoseOfTheStandard) {
  const auto sum = [](std::string_view text) {
    return crc32c({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  };
  EXPECT_EQ(sum("123456789"), 0xe306'9283U);            // the check value of CRC-32C
  EXPECT_EQ(sum(std::string(32, '\0')), 0x8a91'36aaU);  // RFC 3720, B.4
  EXPECT_EQ(sum(std::string(32, '\xff')), 0x62a8'ab43U);
  EXPECT_EQ(sum(""), 0U);
}

TEST(TraceCodings, UnpackingGivesExactlyWhatWasAskedFor) {
  Bytes plain(5'000, 'a');
  Bytes packed;
  Packer packer;
  const std::size_t size = packer.append(packed, plain);
  ASSERT_EQ(size, packed.size());
  EXPECT_LT(packed.size(), 50U);
  Unpacker unpacker;
  Bytes back;
  ASSERT_TRUE(unpacker.append(back, packed, plain.size()));
  EXPECT_EQ(back, plain);
  EXPECT_FALSE(unpacker.append(back, packed, plain.size() - 1));
  EXPECT_FALSE(unpacker.append(back, packed, plain.size() + 1));
  EXPECT_FALSE(unpacker.append(back, packed, packed.size() - 1));
}

TEST(TraceCodings, WhatDoesNotShrinkIsStored) {
  std::mt19937_64 random{1};
  Bytes noise(1'000);
  for (auto& byte : noise) byte = static_cast<std::uint8_t>(random());
  Bytes packed;
  Packer packer;
  EXPECT_EQ(packer.append(packed, noise), noise.size());
  EXPECT_EQ(packed, noise);
}

TEST(TraceCodings, NoPathIsWritten) {
  Image image;
  image.program = "/home/somebody/secret/program";
  image.allocator = "relative/" + std::string(1'000, 'x');
  Image back;
  ASSERT_TRUE(decode_begin(encode_begin(image), back));
  EXPECT_EQ(back.program, "program");
  EXPECT_EQ(back.allocator, std::string(max_name_bytes, 'x'));
}

}  // namespace
}  // namespace ts::trace::testing
