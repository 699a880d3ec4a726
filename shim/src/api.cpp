// The exported C functions of clocks, marks, requests and op scopes (phantora/adaptor_api.h). The memory ones are in
// cuda/.
#include <cstdlib>
#include <cstring>

#include "client_state.hpp"
#include "phantora/adaptor_api.h"

#ifndef PHANTORA_BUILD_ID
#define PHANTORA_BUILD_ID "development"
#endif

namespace client = phantora::client;
namespace wire = phantora::wire;

extern "C" {

const char* phantora_build_id(void) { return PHANTORA_BUILD_ID; }
int phantora_mode(void) { return static_cast<int>(client::mode()); }
void phantora_attach(int rank) { client::attach(rank); }
int phantora_world_rank(void) { return client::world_rank(); }

uint64_t phantora_now_ns(void) { return client::is_virtual() ? client::now_ns() : 0; }
uint64_t phantora_stamp_ns(void) { return client::is_virtual() ? client::stamp_ns() : 0; }
void phantora_join_ns(uint64_t clock_ns) { client::join(clock_ns); }
void phantora_advance_ns(uint64_t ns) { client::advance(ns); }

void phantora_set_driving(int on) {
  if (on != 0) {
    client::ensure_driving();
  } else if (client::is_driver()) {
    client::flush_records();
    client::t_thread.own = client::stamp_ns();
    client::t_thread.driving = false;
    client::g_state.drivers.fetch_sub(1);
  }
}

int phantora_is_driving(void) { return client::driving() ? 1 : 0; }

void phantora_mark(int kind, uint64_t value, const char* text) {
  if (!client::is_actor()) return;
  wire::Record record = {};
  record.type = wire::RecordType::kMark;
  record.mark.kind = static_cast<wire::MarkKind>(kind);
  record.mark.value = value;
  record.mark.text = text == nullptr || *text == '\0' ? 0 : client::intern(text);
  client::submit(wire::CallKind::kFree, record);
}

void phantora_note(const char* kind, const char* text) { client::note(kind, text); }
void phantora_exit(int status) { client::send_exit(status); }

void phantora_report_torch_memory(uint64_t reserved_peak, uint64_t allocated_peak) {
  if (!client::is_actor()) return;
  client::g_state.block->torch_reserved_peak.store(reserved_peak);
  client::g_state.block->torch_allocated_peak.store(allocated_peak);
}

uint32_t phantora_request(uint16_t type, const void* body, size_t body_bytes, void** reply, size_t* reply_bytes) {
  const auto message = static_cast<wire::MessageType>(type);
  // A loop that polls a store without sleeping must see time pass.
  if (message >= wire::MessageType::kStoreSet && message <= wire::MessageType::kStoreList)
    client::charge(wire::CallKind::kStore);
  std::vector<std::byte> answer;
  const auto status = client::request(message, std::span(static_cast<const std::byte*>(body), body_bytes), answer);
  if (reply != nullptr) {
    *reply = std::malloc(answer.size() + 1);
    if (*reply != nullptr) std::memcpy(*reply, answer.data(), answer.size());
  }
  if (reply_bytes != nullptr) *reply_bytes = answer.size();
  return static_cast<uint32_t>(status);
}

void phantora_free(void* pointer) { std::free(pointer); }

void phantora_op_begin(const char* name, uint64_t input_bytes) { client::op_begin(name, input_bytes); }
void phantora_op_end(uint64_t output_bytes) { client::op_end(output_bytes); }

}  // extern "C"
