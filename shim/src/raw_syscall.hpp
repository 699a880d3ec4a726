// System calls without the C library: its wrappers are interposed by this very library, and `syscall` is too.
#pragma once

namespace phantora {

template <typename Argument>
long as_register(Argument argument) {
  if constexpr (__is_same(Argument, decltype(nullptr))) {
    return 0;
  } else {
    return (long)(argument);  // pointers and integers alike
  }
}

inline long raw_syscall6(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
#else
#error "Phantora's shim is written for x86-64 Linux"
#endif
}

// Returns -errno on failure.
template <typename... Arguments>
long raw_syscall(long number, Arguments... arguments) {
  static_assert(sizeof...(Arguments) <= 6);
  long values[6] = {as_register(arguments)...};
  return raw_syscall6(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

}  // namespace phantora
