/* Shared by the native libraries: exported functions, the instruction sets of the processor, its mode for subnormals.
   */

#include <stdint.h>

#ifdef _WIN32
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

#if defined(__x86_64__) || defined(_M_X64)
#define ON_X86 1
#include <cpuid.h>
#include <immintrin.h>
#else
#define ON_X86 0
#endif

namespace {

/* Sets the processor's mode for subnormals until the end of a scope. On x86 a sum or product with a subnormal takes
   about 150 cycles, unless it is flushed to zero; torch.set_flush_denormal may have set either mode before. */
struct Subnormals {
    enum Mode { EXACT = 0x1f80, FLUSH = 0x9fc0 };
#if ON_X86
    unsigned before = _mm_getcsr();
    explicit Subnormals(Mode mode) { set(mode); }
    ~Subnormals() { set(before); }
    static void set(unsigned mode)
    {
        __asm__ volatile("" ::: "memory");
        _mm_setcsr(mode);
        __asm__ volatile("" ::: "memory");
    }
#else
    explicit Subnormals(Mode) {}
#endif
};

#if ON_X86
/* Asks the processor itself, because clang 14 has no name for this feature. */
bool converts_half()
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

/* The widest instruction set of this processor: 0 plain, 1 AVX2, 2 AVX-512. */
int widest()
{
#if ON_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && converts_half()) return 1;
#endif
    return 0;
}

}
