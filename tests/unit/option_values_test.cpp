// Values of options as text and as numbers.
#include "os/option_values.h"

#include <gtest/gtest.h>

#include <string>

namespace ts::testing {
namespace {

constexpr Range size{Kind::size, 0, "auto|off"};
constexpr Range number{Kind::number, 1000, ""};

std::string shown(const Range& range, std::uint64_t value) {
  const ShortText text = text_of(range, value);
  return {text.begin(), text.length()};
}

// As it is shown again; "" if it is refused.
std::string parsed(const Range& range, const char* text) {
  std::uint64_t value = 0;
  return parse(range, text, value) ? shown(range, value) : "";
}

std::uint64_t bytes(const char* text) {
  std::uint64_t value = 0;
  EXPECT_TRUE(parse(size, text, value)) << text;
  const SizeOption option{value};
  EXPECT_FALSE(option.is_word() || option.is_percent()) << text;
  return option.number();
}

TEST(OptionValues, SizesAreBytesWithUnits) {
  EXPECT_EQ(bytes("1"), 1U);
  EXPECT_EQ(bytes("4097"), 4097U);
  EXPECT_EQ(bytes("64K"), 65536U);
  EXPECT_EQ(bytes("64k"), 65536U);
  EXPECT_EQ(bytes("256M"), 256U << 20);
  EXPECT_EQ(bytes("3g"), std::uint64_t{3} << 30);
  EXPECT_EQ(bytes("2T"), std::uint64_t{2} << 40);
  EXPECT_EQ(bytes("256T"), SizeOption::most_bytes);
  EXPECT_EQ(bytes("0000512M"), 512U << 20);
  EXPECT_EQ(parsed(size, "1536M"), "1536M");
  EXPECT_EQ(parsed(size, "1024M"), "1G");
  EXPECT_EQ(parsed(size, "4097"), "4097");
}

TEST(OptionValues, SizesAreWordsOrPartsOfMemory) {
  std::uint64_t value = 7;
  EXPECT_TRUE(parse(size, "auto", value));
  EXPECT_EQ(value, 0U);
  EXPECT_TRUE(parse(size, "off", value));
  EXPECT_EQ(value, 1U);
  EXPECT_TRUE(parse(size, "75%", value));
  EXPECT_TRUE(SizeOption{value}.is_percent());
  EXPECT_EQ(SizeOption{value}.number(), 75U);
  for (const char* const text : {"auto", "off", "1%", "100%"}) EXPECT_EQ(parsed(size, text), text);
}

TEST(OptionValues, OtherSizesAreRefused) {
  for (const char* const text : {"",
                                 "0",
                                 "0%",
                                 "101%",
                                 "1.5G",
                                 "-1",
                                 "+1",
                                 " 1",
                                 "1 ",
                                 "1M ",
                                 "1MB",
                                 "1Mi",
                                 "M",
                                 "%",
                                 "1%%",
                                 "50M%",
                                 "257T",
                                 "281474976710657",
                                 "99999999999999999999",
                                 "18446744073709551617",
                                 "1P",
                                 "Auto",
                                 "auto|off",
                                 "|",
                                 "0x10"})
    EXPECT_EQ(parsed(size, text), "") << text;
}

TEST(OptionValues, MillisecondsHaveNoUnit) {
  constexpr Range delay{Kind::milliseconds, 5000, "auto|never|-1"};
  for (const char* const text : {"auto", "never", "-1", "0", "5000"})
    EXPECT_EQ(parsed(delay, text), text);
  for (const char* const text : {"", "5001", "1K", "1s", "-2", "10%", "1.5"})
    EXPECT_EQ(parsed(delay, text), "") << text;
}

TEST(OptionValues, NumbersAreDigits) {
  EXPECT_EQ(parsed(number, "1000"), "1000");
  EXPECT_EQ(parsed(number, "007"), "7");
  for (const char* const text : {"", "1001", "1K", "10%", "-0"})
    EXPECT_EQ(parsed(number, text), "");
}

}  // namespace
}  // namespace ts::testing
