// The one translation unit of the adaptor: ATen's headers dominate its compile time, so they are read once.
#include "api.cpp"
#include "call.cpp"
#include "guards.cpp"
#include "observer.cpp"
#include "old_systems.cpp"
#include "op_info.cpp"
#include "overrides.cpp"
#include "region.cpp"
