#include "guards.hpp"

#include <dlfcn.h>

namespace phantora::adaptor {

namespace {

// Everything above the backend kernels but BackendSelect, which factory functions need.
c10::DispatchKeySet above_backends() {
  c10::DispatchKeySet keys = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  for (const c10::DispatchKey key :
       {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::PythonDispatcher,
        c10::DispatchKey::Functionalize, c10::DispatchKey::Tracer, c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
        c10::DispatchKey::FuncTorchDynamicLayerBackMode, c10::DispatchKey::FuncTorchBatched,
        c10::DispatchKey::FuncTorchVmapMode, c10::DispatchKey::DeferredInit, c10::DispatchKey::PreDispatch}) {
    keys = keys.add(key);
  }
  return keys;
}

// OpenMP's thread count is a property of the calling thread's task, so changing it here changes nobody else's.
// at::set_num_threads() would change the user's own CPU work. Found at run time: torch brings its own libgomp.
struct OpenMp {
  int (*get)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  void (*set)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
};

const OpenMp& open_mp() {
  static const OpenMp functions;
  return functions;
}

}  // namespace

QuietState::Silence QuietState::silence_;

QuietState::QuietState()
    : plain_keys_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect), above_backends()), threads_(0) {
  if (open_mp().get != nullptr && open_mp().set != nullptr) {
    threads_ = open_mp().get();
    open_mp().set(1);
  }
}

QuietState::~QuietState() {
  if (threads_ > 0) open_mp().set(threads_);
}

}  // namespace phantora::adaptor
