// Writes the Protocol Buffers wire format: fields that are varints, and length-delimited bytes.
// Uses memory of its own, so that a profile is written without malloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "os/os.h"

namespace ts::engine {

inline constexpr unsigned varint_type = 0;
inline constexpr unsigned length_type = 2;
inline constexpr std::size_t max_varint_bytes = 10;

// Writes a varint to `to`, which has room for max_varint_bytes; returns its length.
inline std::size_t put_varint(char* to, std::uint64_t value) noexcept {
  std::size_t bytes = 0;
  for (; value >= 0x80; value >>= 7) to[bytes++] = static_cast<char>(value | 0x80);
  to[bytes++] = static_cast<char>(value);
  return bytes;
}

// A message, or a packed field, with a fixed capacity. What does not fit is left out.
class Message {
 public:
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  void varint(std::uint64_t value) noexcept {
    if (size_ + max_varint_bytes <= capacity_) size_ += put_varint(bytes_ + size_, value);
  }
  // Omits the field if the value is its default.
  void number(unsigned field, std::uint64_t value) noexcept {
    if (value == 0) return;
    varint(field << 3 | varint_type);
    varint(value);
  }
  void message(unsigned field, const Message& message) noexcept {
    if (size_ + 2 * max_varint_bytes + message.size_ > capacity_) return;
    varint(field << 3 | length_type);
    varint(message.size_);
    std::memcpy(bytes_ + size_, message.bytes_, message.size_);
    size_ += message.size_;
  }
  const char* begin() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return size_; }

 protected:
  Message(char* bytes, std::size_t capacity) noexcept : bytes_{bytes}, capacity_{capacity} {}
  ~Message() = default;

 private:
  char* const bytes_;
  const std::size_t capacity_;
  std::size_t size_ = 0;
};

// Contains its buffer: a profile is written on the stack of any thread, which may be a small one.
template <std::size_t capacity>
class MessageOf : public Message {
 public:
  MessageOf() noexcept : Message{storage_, capacity} {}

 private:
  char storage_[capacity];
};

// Writes the fields of the outermost message to a file.
class Output {
 public:
  explicit Output(int descriptor) noexcept : descriptor_{descriptor} {}

  void number(unsigned field, std::uint64_t value) noexcept {
    MessageOf<2 * max_varint_bytes> message;
    message.number(field, value);
    put(message.begin(), message.size());
  }
  void message(unsigned field, const Message& message) noexcept {
    length(field, message.size());
    put(message.begin(), message.size());
  }
  void text(unsigned field, const char* text) noexcept {
    const std::size_t size = std::strlen(text);
    length(field, size);
    put(text, size);
  }
  // 0 if everything was written, else the first error of write(2).
  int flush() noexcept {
    if (error_ == 0 && size_ != 0) error_ = os::write(descriptor_, bytes_, size_);
    size_ = 0;
    return error_;
  }

 private:
  void length(unsigned field, std::size_t size) noexcept {
    char begin[2 * max_varint_bytes];
    const std::size_t bytes = put_varint(begin, field << 3 | length_type);
    put(begin, bytes + put_varint(begin + bytes, size));
  }
  void put(const char* from, std::size_t count) noexcept {
    while (count != 0) {
      if (size_ == sizeof bytes_ && flush() != 0) return;
      const std::size_t part = count < sizeof bytes_ - size_ ? count : sizeof bytes_ - size_;
      std::memcpy(bytes_ + size_, from, part);
      size_ += part;
      from += part;
      count -= part;
    }
  }

  int descriptor_;
  int error_ = 0;
  std::size_t size_ = 0;
  char bytes_[2048];
};

}  // namespace ts::engine
