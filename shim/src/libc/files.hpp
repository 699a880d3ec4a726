// Locks of files that this process holds in the core's order (files.cpp).
#pragma once

namespace phantora::libc {

// A forked child shares its parent's real locks, but none of their places in the order.
void reset_locks_after_fork();

}  // namespace phantora::libc
