// NVML's devices: all GPUs of the virtual node, whatever CUDA_VISIBLE_DEVICES says. Needs no CUDA initialisation.
#pragma once

#include <cstdint>

#include "client.hpp"
#include "phantora/abi_libs.hpp"

namespace phantora::libs::nvml {

bool usable();  // a run, or null mode
int device_count();
void* handle_of(int device);
int device_of(const void* handle);  // -1: none of ours
const wire::GpuProperties& gpu();

// "00000000:1b:00.0", as NVML writes it, or with a domain of 4 digits.
void bus_id(char* text, std::size_t size, int device, bool short_domain);
int device_by_bus(const char* text);
void uuid(char* text, std::size_t size, int device);

// Once a run: what NVML answers with constants is not simulated.
void note_constants();

}  // namespace phantora::libs::nvml
