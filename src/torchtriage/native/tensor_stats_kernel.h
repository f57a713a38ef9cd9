/* The statistics of one tensor. Included once for each instruction set, after tensor_stats_passes.h.

   A chunk stays in the nearest caches. Almost every chunk takes one pass: extremes, counts, and sums about a pivot
   (0, or the mean so far if that is far from 0). A chunk that turns out to be unfit for it is repeated from the cache
   with a remedy: a mask for non-finite elements, a power-of-two scale for squares that overflow or vanish, or a
   better pivot for a mean far above the standard deviation. */

namespace ISA {

template <class X> struct Kernel : Passes<X> {
    typedef Passes<X> P;
    typedef typename X::F F;
    typedef typename X::I I;
    typedef typename X::Element Element;
    using typename P::V;
    using typename P::M;
    using typename P::Limits;
    using typename P::Extremes;
    using typename P::LookAgain;
    using typename P::CountLarge;
    using P::all;
    using P::all_bits;
    using P::size;
    using P::lower;
    using P::higher;
    using P::ordered;
    using P::each;
    using P::CHUNK;
    using P::WIDE;
    using P::HALF;
    using P::LANES;
    using P::STEP;
    using P::INF;
    using P::INF_BITS;
    static constexpr double MAX_SPREAD = WIDE ? 1e6 : 2;              /* squares about pivot / squares about mean */
    static constexpr double MIN_SQUARE = WIDE ? 0x1p-900 : 0x1p-120;  /* smaller squares have lost digits */
    /* Exponents: the largest whose square F holds safely, and the largest of a normal F. */
    static constexpr int COMFORT = WIDE ? 400 : 50, MAX_SCALE = WIDE ? 1022 : 126;
    static constexpr F NORMAL = (F)(WIDE ? __DBL_MIN__ : __FLT_MIN__);

    FN I lowest(M x)
    {
        I lanes[LANES];
        __builtin_memcpy(lanes, &x, sizeof x);
        for (int half = LANES / 2; half; half /= 2)
            for (int i = 0; i < half; i++) lanes[i] = lanes[i] < lanes[i + half] ? lanes[i] : lanes[i + half];
        return lanes[0];
    }
    FN I highest(M x) { return ~lowest(~x); }
    FN F value(I order)
    {
        const V lanes = (V)ordered(all_bits(order));
        return lanes[0];
    }
    FN int64_t count(M lanes)
    {
        Longs wide{};
        add_up<I>(lanes, wide);
        return sum_of<int64_t>(wide);
    }

    /* Whether extremes from a first pass are exact. Those of 16-bit elements are if both signs occur, others unless
       they may be subnormal. */
    FN bool exact(const Extremes &e)
    {
        const bool low = any((M)(e.low <= -NORMAL)), high = any((M)(e.high >= NORMAL));
        if (HALF) return low && high;
        return (low || !any((M)(e.low < NORMAL))) && (high || !any((M)(e.high > -NORMAL)));
    }

    /* Whether squares near zero are correct: all elements equal the pivot, and F can hold the square of the pivot. */
    FN bool flat(F pivot, const Extremes &e)
    {
        if (pivot == 0 || any((M)(e.low != pivot) & (M)(e.low != INF)) || any((M)(e.high != pivot) & (M)(e.high != -INF))) return false;
        return !WIDE || ((double)pivot * pivot > MIN_SQUARE && (double)pivot * pivot < 1 / MIN_SQUARE);
    }

    struct Moments { double sum, square; };
    FN Moments moments(const typename P::Sums &s) { return {sum_of<double>(s.sum), sum_of<double>(s.square)}; }
    FN bool fit(Moments m, double n) { return m.square == 0 || m.square <= MAX_SPREAD * (m.square - m.sum * m.sum / n); }

    template <bool SCALE, bool LIFT>
    static ISA_TARGET __attribute__((noinline)) Moments add_again(const Element *x, int n, F pivot, int exponent)
    {
        const V scale = all((F)power_of_two(-exponent)), unit = all(LIFT ? (F)power_of_two(-149 - exponent) : 0);
        typename P::template AddAgain<SCALE, LIFT> p{all(pivot), scale, unit}, other = p;
        each(x, n, p, other);
        return moments(p.sums);
    }

    struct Tensor {
        Row &row;
        const Limits &limits;
        F pivot = 0;
        bool odd = false;                       /* the previous chunk was not fit for the first pass */
        M low = all_bits(INF_BITS), high = all_bits(~INF_BITS);         /* ordered */
        Longs zero{}, small{};
        Merged merged{};
    };

    FN void keep(Tensor &t, const Extremes &e)
    {
        t.low = lower(ordered((M)e.low), t.low), t.high = higher(ordered((M)e.high), t.high);
        add_up<I>(e.zero, t.zero), add_up<I>(e.small, t.small);
    }

    static ISA_TARGET __attribute__((noinline)) Extremes look_again(Tensor &t, const Element *x, int n, Row &counts)
    {
        LookAgain p{t.limits}, other = p;
        each(x, n, p, other);
        counts.num_nan = count(p.num_nan + other.num_nan), counts.num_inf = count(p.num_inf + other.num_inf);
        /* As integers, NaN are beyond any limit. */
        counts.num_large = count(p.num_large + other.num_large) - counts.num_nan;
        return {(V)ordered(lower(p.low, other.low)), (V)ordered(higher(p.high, other.high)), p.zero + other.zero, p.small + other.small};
    }

    /* A chunk with elements that are not finite, or whose squares F cannot hold. */
    static ISA_TARGET __attribute__((noinline)) void odd_chunk(Tensor &t, const Element *x, int n)
    {
        Row counts{};
        const Extremes e = look_again(t, x, n, counts);
        keep(t, e);
        t.row.num_nan += counts.num_nan, t.row.num_inf += counts.num_inf, t.row.num_large += counts.num_large;
        t.odd = true;
        const double num = n - counts.num_nan - counts.num_inf;
        if (num == 0) return;
        const M extent = higher(size(e.low) & (M)(size(e.low) < INF_BITS), size(e.high) & (M)(size(e.high) < INF_BITS));
        const int exponent = (int)(highest(extent) >> (WIDE ? 52 : 23)) - MAX_SCALE;
        const int scale = exponent > MAX_SCALE ? MAX_SCALE : exponent;
        const bool lift = !WIDE && exponent < -60;     /* subnormals matter */
        const auto add_again = lift ? Kernel::add_again<true, true> : Kernel::add_again<true, false>;
        F pivot = 0;
        Moments m = add_again(x, n, pivot, scale);
        for (int attempt = 0; attempt < 3 && !fit(m, num); attempt++) m = add_again(x, n, pivot += (F)(m.sum / num), scale);
        merge(t.merged, num, pivot, m.sum, m.square, scale);
        t.odd = num < n || exponent > COMFORT || exponent < -COMFORT;
    }

    template <bool SMALL, bool PIVOT> FN void chunk(Tensor &t, const Element *x, int n)
    {
        typename P::template FirstPass<SMALL, PIVOT> p{t.limits, all(t.pivot)}, other = p;
        each(x, n, p, other);
        Moments m = moments(p.sums);
        for (int attempt = 0; attempt < 3 && m.square < __builtin_inf() && !fit(m, n); attempt++)
            m = add_again<false, false>(x, n, t.pivot += (F)(m.sum / n), 0);
        if (!(m.square < __builtin_inf())) return odd_chunk(t, x, n);
        Extremes &e = p.extremes;
        P::join(e, other.extremes);
        if (HALF) P::join_halves(e, p.halves), P::join_halves(e, other.halves);
        const bool zeros = m.square == 0 && t.pivot == 0 && count(e.zero) == n;
        if (!zeros && !exact(e)) {
            Row unused{};
            const Extremes again = look_again(t, x, n, unused);
            e.low = again.low, e.high = again.high;
        }
        if (m.square < n * MIN_SQUARE && !zeros && !flat(t.pivot, e)) return odd_chunk(t, x, n);
        keep(t, e);
        if (any((M)(higher(size(e.low), size(e.high)) > t.limits.large))) {
            CountLarge large{all_bits(t.limits.large)}, other_large = large;
            each(x, n, large, other_large);
            t.row.num_large += count(large.count + other_large.count);
        }
        merge(t.merged, n, t.pivot, m.sum, m.square, 0);
    }

    template <bool SMALL> static ISA_TARGET void tensor(const Element *x, int64_t num, const Limits &limits, Row &row)
    {
        Tensor t{row, limits};
        {
            const Subnormals mode(WIDE ? Subnormals::EXACT : Subnormals::FLUSH);
            for (int64_t start = 0; start < num; start += CHUNK) {
                const int n = num - start < CHUNK ? (int)(num - start) : CHUNK;
                if (t.odd) odd_chunk(t, x + start, n);
                else if (t.pivot == 0) chunk<SMALL, false>(t, x + start, n);
                else chunk<SMALL, true>(t, x + start, n);
            }
        }
        row.num_zero = (double)sum_of<int64_t>(t.zero), row.num_small = SMALL ? (double)sum_of<int64_t>(t.small) : 0;
        finish(row, t.merged, num, value(lowest(t.low)), value(highest(t.high)));
    }

    static ISA_TARGET void run(const void *x, int64_t num, double small, double large, Row &row)
    {
        const F low = above<F>(small), high = below<F>(large);
        Limits limits{};
        __builtin_memcpy(&limits.small, &low, sizeof low);
        __builtin_memcpy(&limits.large, &high, sizeof high);
        if (HALF) limits.small_half = small_half(low);
        (small > 0 ? tensor<true> : tensor<false>)((const Element *)x, num, limits, row);
    }

    /* The smallest 16-bit element that is not below a limit, or infinity. */
    static ISA_TARGET int16_t small_half(F limit)
    {
        int low = 0, high = 0x7fff;
        while (low < high) {
            const int middle = (low + high) / 2;
            Element element[STEP] = {(Element)middle};
            V x[X::LOADS];
            X::load(element, x);
            if (x[0][0] < limit) low = middle + 1;
            else high = middle;
        }
        return (int16_t)low;
    }
};

typedef void (*Run)(const void *, int64_t, double, double, Row &);
static const Run RUN[] = {Kernel<Float32>::run, Kernel<Float64>::run, Kernel<BFloat16>::run, Kernel<Float16>::run};

/* For benchmarks: only reads the same bytes, in the way that was measured to be the fastest, which is that of a pass.
   */
static ISA_TARGET uint64_t read(const void *from, int64_t num_bytes)
{
    typedef Lanes<uint64_t> L;
    constexpr int PART = CHUNK_BYTES / STREAMS;
    const char *x = (const char *)from, *const end = x + num_bytes;
    L::type sums[STREAMS] = {};
    for (; x + CHUNK_BYTES <= end; x += CHUNK_BYTES)
        for (const char *at = x; at < x + PART; at += ISA_BYTES)
            for (int s = 0; s < STREAMS; s++) {
                if ((at - x) % LINE_BYTES == 0) __builtin_prefetch(at + s * PART + CHUNK_BYTES, 0, 2);
                sums[s] += *(const L::loose *)(at + s * PART);
            }
    for (; x + ISA_BYTES <= end; x += ISA_BYTES) sums[0] += *(const L::loose *)x;
    uint64_t sum = 0;
    for (int s = 0; s < STREAMS; s++) sum += sum_of<uint64_t>(sums[s]);
    for (; x < end; x++) sum += *(const unsigned char *)x;
    return sum;
}

}
