/* What the native parts share: how a function is exported, which instruction sets this processor has, how it treats subnormals. */

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

/* How the processor treats subnormals, until the end of a scope. An x86 one takes about 150 cycles for a sum or product of one unless
   told to flush it to zero; torch.set_flush_denormal may have told it before. */
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
/* Asked of the processor itself: clang 14 knows no name for it. */
bool converts_half()
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

/* The instruction sets that sources are compiled for, from the plainest to the widest: 0 plain, 1 AVX2, 2 AVX-512. */
int widest()
{
#if ON_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && converts_half()) return 1;
#endif
    return 0;
}

}
