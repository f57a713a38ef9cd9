/* Counts guard hits and misses. Dynamo calls this through ctypes.PyDLL. No Python code runs here, so no signal handler
   can raise inside the hook, which would abort the process. */

#include <stdatomic.h>
#include <stdbool.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

static atomic_llong num_hits;
static atomic_llong num_misses;

EXPORT bool guard_meter_count(bool hit)
{
    atomic_fetch_add_explicit(hit ? &num_hits : &num_misses, 1, memory_order_relaxed);
    return true;
}

EXPORT long long guard_meter_hits(void) { return atomic_load_explicit(&num_hits, memory_order_relaxed); }
EXPORT long long guard_meter_misses(void) { return atomic_load_explicit(&num_misses, memory_order_relaxed); }
