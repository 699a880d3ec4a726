/* What the shim exports to the torch adaptor, to phantora_runtime (ctypes) and to tests. C ABI; every function may be called
 * in any process that has the shim loaded; in an inert process they do nothing and return 0. */
#ifndef PHANTORA_ADAPTOR_API_H
#define PHANTORA_ADAPTOR_API_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

const char* phantora_build_id(void);
int phantora_mode(void);                       /* client::Mode as int */
void phantora_attach(int rank);                /* this process becomes the rank's main actor */
int phantora_world_rank(void);

/* clocks */
uint64_t phantora_now_ns(void);                /* calling thread's virtual time since the start of the run */
uint64_t phantora_stamp_ns(void);              /* clock to hand on with an item: H, a helper thread's or a child's own clock (never global time) */
void phantora_join_ns(uint64_t clock_ns);      /* calling thread's clock = max(own, clock_ns) */
void phantora_advance_ns(uint64_t ns);
void phantora_set_driving(int on);             /* the calling thread drives H (main thread: set by attach) */
int phantora_is_driving(void);

/* marks: kind = wire::MarkKind */
void phantora_mark(int kind, uint64_t value, const char* text);
void phantora_note(const char* kind, const char* text);
void phantora_exit(int status);                /* tells the core this rank ends with `status` (also done by _exit hooks) */
void phantora_report_torch_memory(uint64_t reserved_peak, uint64_t allocated_peak);

/* Raw request to the core (bodies as in wire.hpp). *reply is malloc'ed (free with phantora_free). Returns wire::Status. */
uint32_t phantora_request(uint16_t type, const void* body, size_t body_bytes, void** reply, size_t* reply_bytes);
void phantora_free(void* pointer);

/* op scopes */
void phantora_op_begin(const char* name, uint64_t input_bytes);
void phantora_op_end(uint64_t output_bytes);

/* device memory and values */
int phantora_is_device_pointer(const void* pointer);
/* Run `try_run(context)` in program order with the copies and collectives of this process: at once if nothing earlier is
 * pending, else at the next wait. try_run returns 1 when done, 0 when its inputs have not arrived. destroy(context) follows. */
void phantora_run_in_order(int (*try_run)(void*), void (*destroy)(void*), void* context);
/* The same for an action that touches only these ranges: it waits for, and holds up, only what touches them too. A host wait
 * does not wait for it unless something the host sees depends on it (phantora_settle). */
struct phantora_range {
  const void* pointer;
  size_t bytes;
};
void phantora_run_on_ranges(int (*try_run)(void*), void (*destroy)(void*), void* context,
                            const struct phantora_range* reads, size_t read_count,
                            const struct phantora_range* writes, size_t write_count);
/* Returns when every queued action that writes the range has run. Only after a wait of the host for the stream meant. */
void phantora_settle(const void* pointer, size_t bytes);
/* The range was (or will be) written by a kernel that is not executed: it reads as zeros from here on. */
void phantora_mark_unknown(void* pointer, size_t bytes);
/* The range now holds real values written by the caller. */
void phantora_mark_known(void* pointer, size_t bytes);
/* 1 if every byte of the range holds real values (host copies, fills, executed ops). */
int phantora_is_known(const void* pointer, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
