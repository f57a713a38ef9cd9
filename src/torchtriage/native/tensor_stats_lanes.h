/* Vectors of ISA_BYTES, and the loads of each dtype into them. Included once for each instruction set, so it has no
   #pragma once: ISA names its namespace, ISA_TARGET lets the compiler use it, ISA_F16C is 1 if it converts half
   precision. */

namespace ISA {

template <class T, int BYTES = ISA_BYTES> struct Lanes {
    typedef T type __attribute__((vector_size(BYTES)));
    typedef T loose __attribute__((vector_size(BYTES), aligned(1), may_alias));
};
typedef Lanes<float>::type Floats;
typedef Lanes<double>::type Doubles;
typedef Lanes<int16_t>::type Halves;
typedef Lanes<int32_t>::type Words;
typedef Lanes<int64_t>::type Longs;

template <class Part, class Wide> FN Wide widened(Part part, Wide) { return __builtin_convertvector(part, Wide); }
#if ISA_BYTES == 64
/* The compiler itself would convert quarters and join them. */
FN Doubles widened(Lanes<float, 32>::type part, Doubles) { return (Doubles)_mm512_maskz_cvtps_pd(0xff, (__m256)part); }
#endif

/* Adds lanes of T to fewer lanes of 64 bits. */
template <class T, class V, class Wide> FN void add_up(V x, Wide &into)
{
    constexpr int PARTS = 8 / sizeof(T);
    typename Lanes<T, ISA_BYTES / PARTS>::type parts[PARTS];
    __builtin_memcpy(parts, &x, sizeof x);
    for (int i = 0; i < PARTS; i++) into += widened(parts[i], Wide{});
}

template <class T, class V> FN T sum_of(V x)
{
    T lanes[ISA_BYTES / 8];
    __builtin_memcpy(lanes, &x, sizeof x);
    for (int half = ISA_BYTES / 16; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

template <class M> FN bool any(M mask)
{
    uint64_t lanes[ISA_BYTES / 8], bits = 0;
    __builtin_memcpy(lanes, &mask, sizeof mask);
    for (int i = 0; i < ISA_BYTES / 8; i++) bits |= lanes[i];
    return bits != 0;
}

/* Counters: add 1 in each lane in which an integer is 0, or less than another. */
#if ISA_BYTES == 64
#define MASKED_SUBTRACTION(BITS)                                                                                             \
    FN Lanes<int##BITS##_t>::type plus_zero(Lanes<int##BITS##_t>::type n, Lanes<int##BITS##_t>::type x)                      \
    {                                                                                                                        \
        const __m512i c = (__m512i)n, a = (__m512i)x;                                                                        \
        return (Lanes<int##BITS##_t>::type)_mm512_mask_sub_epi##BITS(                                                        \
            c, _mm512_testn_epi##BITS##_mask(a, a), c, _mm512_set1_epi##BITS(-1));                                           \
    }                                                                                                                        \
    FN Lanes<int##BITS##_t>::type plus_less(                                                                                 \
        Lanes<int##BITS##_t>::type n, Lanes<int##BITS##_t>::type x, Lanes<int##BITS##_t>::type y)                            \
    {                                                                                                                        \
        const __m512i c = (__m512i)n;                                                                                        \
        return (Lanes<int##BITS##_t>::type)_mm512_mask_sub_epi##BITS(                                                        \
            c, _mm512_cmplt_epi##BITS##_mask((__m512i)x, (__m512i)y), c, _mm512_set1_epi##BITS(-1));                         \
    }
MASKED_SUBTRACTION(16)
MASKED_SUBTRACTION(32)
MASKED_SUBTRACTION(64)
#undef MASKED_SUBTRACTION
#else
template <class M> FN M plus_zero(M n, M x) { return n - (M)(x == 0); }
template <class M> FN M plus_less(M n, M x, M y) { return n - (M)(x < y); }
#endif

/* The loads of a dtype: LOADS vectors of F at a time, in any order, because no statistic depends on the order. I is an
   integer of F's size. */
struct Float32 {
    typedef float F, Element;
    typedef int32_t I;
    static constexpr int LOADS = 1;
    static constexpr Element ONE = 1;
    FN void load(const void *from, Floats *to) { to[0] = *(const Lanes<float>::loose *)from; }
};

struct Float64 {
    typedef double F, Element;
    typedef int64_t I;
    static constexpr int LOADS = 1;
    static constexpr Element ONE = 1;
    FN void load(const void *from, Doubles *to) { to[0] = *(const Lanes<double>::loose *)from; }
};

struct BFloat16 {
    typedef float F;
    typedef int16_t Element;
    typedef int32_t I;
    static constexpr int LOADS = 2;
    static constexpr Element ONE = 0x3f80;
    FN void load(const void *from, Floats *to)
    {
        const Words pairs = *(const Lanes<int32_t>::loose *)from;
        to[0] = (Floats)(pairs << 16);
        to[1] = (Floats)(pairs & (int32_t)0xffff0000);
    }
};

struct Float16 {
    typedef float F;
    typedef int16_t Element;
    typedef int32_t I;
    static constexpr int LOADS = 2;
    static constexpr Element ONE = 0x3c00;
#if ISA_F16C && ISA_BYTES == 64
    FN void load(const void *from, Floats *to)
    {
        for (int l = 0; l < 2; l++) to[l] = (Floats)_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256((const __m256i *)from + l));
    }
#elif ISA_F16C
    FN void load(const void *from, Floats *to)
    {
        for (int l = 0; l < 2; l++) to[l] = (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from + l));
    }
#else
    /* The exponent grows by 112, and by another 112 for infinities and NaN. A subnormal is 2^-14 with its bits added,
       less 2^-14. */
    FN Floats widened(Words half)
    {
        const Words bits = (half & 0x7fff) << 13, sign = half << 16 & (int32_t)0x80000000;
        const Words shift = (Words)(bits >= 0x7c00 << 13) & 112 << 23;
        const Floats subnormal = (Floats)(bits + (113 << 23)) - 0x1p-14f;
        const Words is_subnormal = (Words)(bits < 0x0400 << 13), normal = bits + (112 << 23) + shift;
        return (Floats)(((Words)subnormal & is_subnormal) | (normal & ~is_subnormal) | sign);
    }
    FN void load(const void *from, Floats *to)
    {
        const Words pairs = *(const Lanes<int32_t>::loose *)from;
        to[0] = widened(pairs & 0xffff);
        to[1] = widened(pairs >> 16 & 0xffff);
    }
#endif
};

}
