// Processor-specific parts of the unwinder: the registers that it follows, by their DWARF numbers,
// and the frame that the kernel pushes for a signal handler.
#pragma once

#include <cstdint>

namespace ts::os {

// The registers that are needed to find frames. The others are not followed.
enum SavedRegister : unsigned { frame_pointer, return_address, base_register, saved_registers };

struct Registers {
  std::uintptr_t pc;
  std::uintptr_t sp;
  std::uintptr_t saved[saved_registers];  // return_address: on machines with a link register
};

inline constexpr unsigned no_register = ~0U;

// The first eight bytes of the code, without a table, to which coroutines of makecontext() return;
// 0: its table marks it as outermost.
#if defined(__x86_64__)
// mov %rbx, %rsp; mov (%rsp), %rdi; the first byte of test %rdi, %rdi
inline constexpr std::uint64_t context_end_code = 0x4824'3c8b'48dc'8948;
#else
inline constexpr std::uint64_t context_end_code = 0;
#endif

// The signal frame: the first eight bytes of the code to which a handler returns, and the offsets
// of the interrupted code's registers from the stack pointer at that return (the kernel's
// ucontext_t).
struct SignalFrame {
  std::uint64_t code;
  unsigned pc;
  unsigned sp;
  unsigned saved[saved_registers];  // 0: not followed
};

#if defined(__x86_64__)

inline constexpr unsigned stack_pointer_number = 7;
inline constexpr unsigned pc_number = 16;                               // in expressions
inline constexpr unsigned saved_numbers[saved_registers] = {6, 16, 3};  // rbp, rip, rbx
// mov $15, %rax; the first byte of syscall
inline constexpr SignalFrame signal_frame = {0x0f00'0000'0fc0'c748, 168, 160, {120, 0, 128}};

#elif defined(__aarch64__)

inline constexpr unsigned stack_pointer_number = 31;
inline constexpr unsigned pc_number = no_register;
inline constexpr unsigned saved_numbers[saved_registers] = {29, 30, 19};
// mov x8, #139; svc #0
inline constexpr SignalFrame signal_frame = {0xd400'0001'd280'1168, 568, 560, {544, 552, 464}};

#elif defined(__riscv)

inline constexpr unsigned stack_pointer_number = 2;
inline constexpr unsigned pc_number = no_register;
inline constexpr unsigned saved_numbers[saved_registers] = {8, 1, 9};  // s0, ra, s1
// li a7, 139; ecall
inline constexpr SignalFrame signal_frame = {0x0000'0073'08b0'0893, 304, 320, {368, 312, 376}};

#else
#error "which registers find the frames of this processor?"
#endif

// The pc is that of this very instruction, which has a row in the tables like any other.
[[gnu::always_inline]] inline void read_registers(Registers& registers) noexcept {
#if defined(__x86_64__)
  __asm__ volatile(
      "leaq 0(%%rip), %%rax\n\t"
      "movq %%rax, (%0)\n\t"
      "movq %%rsp, 8(%0)\n\t"
      "movq %%rbp, 16(%0)\n\t"
      "movq %%rbx, 32(%0)"
      :
      : "r"(&registers)
      : "rax", "memory");
#elif defined(__aarch64__)
  __asm__ volatile(
      "adr x16, .\n\t"
      "mov x17, sp\n\t"
      "stp x16, x17, [%0]\n\t"
      "stp x29, x30, [%0, #16]\n\t"
      "str x19, [%0, #32]"
      :
      : "r"(&registers)
      : "x16", "x17", "memory");
#else
  __asm__ volatile(
      "auipc t0, 0\n\t"
      "sd t0, 0(%0)\n\t"
      "sd sp, 8(%0)\n\t"
      "sd s0, 16(%0)\n\t"
      "sd ra, 24(%0)\n\t"
      "sd s1, 32(%0)"
      :
      : "r"(&registers)
      : "t0", "memory");
#endif
}

// A return address without the signature that arm64 may put into it.
inline std::uintptr_t without_signature(std::uintptr_t address) noexcept {
#if defined(__aarch64__)
  register std::uintptr_t x30 __asm__("x30") = address;
  __asm__("hint #7" : "+r"(x30));  // xpaclri; a no-op on processors without it
  return x30;
#else
  return address;
#endif
}

// Where the two words of a frame are, relative to its frame pointer.
#if defined(__riscv)
inline constexpr std::intptr_t pair_offset = -16;
#else
inline constexpr std::intptr_t pair_offset = 0;
#endif

}  // namespace ts::os
