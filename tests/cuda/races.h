// Told by emulator.cpp what runs and what waits for what; accesses come from the compiler (-fsanitize=thread). races.cpp, or nothing without it.
#pragma once
#include <cstddef>

#ifdef RACES
extern "C" {
void races_start(int blocks, int threads, size_t shared_bytes, const void* kernel);
void races_run(int block, int thread, const unsigned char* shared);  // from now on
void races_meet_warp();                                              // all lanes of the running thread's warp
void races_arrive(int barrier);
void races_open(int barrier);  // all have arrived
void races_leave(int barrier);
}
#else
inline void races_start(int, int, size_t, const void*) {}
inline void races_run(int, int, const unsigned char*) {}
inline void races_meet_warp() {}
inline void races_arrive(int) {}
inline void races_open(int) {}
inline void races_leave(int) {}
#endif
