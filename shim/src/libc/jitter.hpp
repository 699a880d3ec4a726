// For tests alone: with PHANTORA_TEST_HELPER_JITTER=<seed> helper threads and detached children sleep a random real
// time of up to 3 ms wherever they wait with a time-out, block, wake up or look at GPU work. No result may change.
#pragma once

namespace phantora::libc {

// Does nothing in a driving thread, and nothing unless the variable is set.
void helper_jitter();

}  // namespace phantora::libc
