// What the report should say about choices that the user's own GPU would make differently.
#pragma once

namespace phantora::libs {

// Called once per kernel, when it is launched for the first time.
void kernel_seen(const char* mangled);

}  // namespace phantora::libs
