// Built on one system, loaded on an older one (an image of the user's own): functions that glibc 2.32 to 2.34 gave a
// new version without a new meaning are bound here to the version that every glibc has. Hidden, so that calls of the
// linked-in libstdc++ come here too. What the shim wraps is not here: real.cpp looks that up when it runs.
#ifdef __x86_64__

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#define PHANTORA_OLDEST(result, name, parameters, arguments) \
  result old_##name parameters;                              \
  __asm__(".symver old_" #name "," #name "@GLIBC_2.2.5");    \
  __attribute__((visibility("hidden"))) result name parameters { return old_##name arguments; }

extern "C" {

// libstdc++ asks this before it counts references without atomics; false is always right.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

PHANTORA_OLDEST(void*, dlopen, (const char* file, int mode), (file, mode))
PHANTORA_OLDEST(void*, dlvsym, (void* handle, const char* name, const char* version), (handle, name, version))
PHANTORA_OLDEST(int, pthread_once, (pthread_once_t * control, void (*routine)()), (control, routine))
PHANTORA_OLDEST(int, pthread_detach, (pthread_t thread), (thread))
PHANTORA_OLDEST(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* old), (how, set, old))
PHANTORA_OLDEST(int, pthread_attr_setstacksize, (pthread_attr_t * attributes, size_t bytes), (attributes, bytes))
PHANTORA_OLDEST(int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
PHANTORA_OLDEST(int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
PHANTORA_OLDEST(int, pthread_rwlock_unlock, (pthread_rwlock_t * lock), (lock))
PHANTORA_OLDEST(int, __pthread_key_create, (pthread_key_t * key, void (*destroy)(void*)), (key, destroy))

int old_fxstat64(int version, int descriptor, struct stat64* status);
__asm__(".symver old_fxstat64,__fxstat64@GLIBC_2.2.5");
__attribute__((visibility("hidden"))) int fstat64(int descriptor, struct stat64* status) noexcept {
  return old_fxstat64(1, descriptor, status);
}

}  // extern "C"

#endif
