// Passes one call on to the next definition. What a shim does with it is up to its class Call,
// defined in its folder's call.h:
//
//   Call(Entry entry, void* block, std::size_t bytes, std::size_t alignment)
//                                        before; block: to be freed or resized; alignment: 0: any
//   void finish(void* block, std::size_t bytes)     after; null: the request failed
//
// Calls nest (libstdc++'s operator new calls malloc), and one that throws never reaches finish().
#pragma once

#include <type_traits>

#include "call.h"
#include "interpose/next.h"

namespace ts {

struct Request {
  Request(std::size_t size, std::size_t aligned_to = 0) : bytes{size}, alignment{aligned_to} {}

  std::size_t bytes;
  std::size_t alignment;
};

template <class... Parameters>
void* pass_on(Entry entry, void* given, Request request, Next<void*(Parameters...)>& next,
              std::type_identity_t<Parameters>... arguments) {
  Call call{entry, given, request.bytes, request.alignment};
  void* const result = next.get()(arguments...);
  call.finish(result, request.bytes);
  return result;
}

template <class... Parameters>
void pass_on_release(Entry entry, Next<void(void*, Parameters...)>& next, void* given,
                     std::type_identity_t<Parameters>... arguments) {
  Call call{entry, given, 0, 0};
  next.get()(given, arguments...);
  call.finish(nullptr, 0);
}

}  // namespace ts
