// Built on one system, loaded on an older one (an image of the user's own): what glibc 2.32 and 2.34 and libstdc++ 11
// moved or added is bound to what all have, or is here.
#include <new>
#include <sstream>

#ifdef __x86_64__
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#endif

// libstdc++ asks this before it counts references without atomics; false is always right.
extern "C" {
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}

#if _GLIBCXX_RELEASE >= 11
template std::string std::stringbuf::str() &&;

namespace std {
[[noreturn]] void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std
#endif
