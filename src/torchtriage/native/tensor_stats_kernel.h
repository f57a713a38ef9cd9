/* The statistics of one tensor. Included once for each instruction set, after tensor_stats_lanes.h.

   A chunk fits the first-level cache. Almost every chunk takes one pass: extremes, counts, and sums about a pivot (0, or the mean so
   far where that is far from 0). A chunk that shows itself unfit for it is done again from the cache, with the cure: a mask for what
   is not finite, a power-of-two scale for squares that overflow or vanish, a better pivot for a mean far above the spread.

   Counting is done on integers: floats of one sign are in the order of their bits, and so subnormals count as what they are even while
   the processor takes them for zero in sums, where they are too small to matter. */

namespace ISA {

template <class X> struct Kernel {
    typedef typename X::F F;
    typedef typename X::I I;
    typedef typename X::Element Element;
    typedef typename Lanes<F>::type V;
    typedef typename Lanes<I>::type M;
    static constexpr bool WIDE = sizeof(F) == 8, HALF = sizeof(Element) == 2;
    static constexpr int LANES = ISA_BYTES / sizeof(F), STEP = LANES * X::LOADS;
    static constexpr int BLOCK = 2 * 16 * LANES;                      /* at most 16 floats are added in a lane before doubles take over */
    static constexpr int CHUNK = CHUNK_BYTES / sizeof(Element);
    static constexpr double MAX_SPREAD = WIDE ? 1e6 : 2;              /* squares about the pivot over squares about the mean */
    static constexpr double MIN_SQUARE = WIDE ? 0x1p-900 : 0x1p-120;  /* smaller squares have lost digits */
    static constexpr int COMFORT = WIDE ? 400 : 50;                   /* the exponents whose squares F holds */
    static constexpr F INF = (F)__builtin_inf(), NORMAL = (F)(WIDE ? __DBL_MIN__ : __FLT_MIN__);
    static constexpr I POSITIVE = (I)(~(uint64_t)0 >> (65 - 8 * sizeof(I))), INF_BITS = (I)(WIDE ? 0x7ffll << 52 : 0xffll << 23);
    static constexpr int MAX_SCALE = WIDE ? 1022 : 126;

    /* As bits of F; the small one also as bits of a 16-bit element. */
    struct Limits { I small, large; int16_t small_half; };

    FN V all(F value) { return value - V{}; }
    FN M all_bits(I value) { return value - M{}; }
    FN M size(V x) { return (M)x & POSITIVE; }
    FN M finite_size(V x) { return size(x) & (M)(size(x) < INF_BITS); }
    template <class T> FN T choose(M mask, T x, T y) { return (T)(((M)x & mask) | ((M)y & ~mask)); }
    template <class T> FN T lower(T x, T y) { return x < y ? x : y; }
    template <class T> FN T higher(T x, T y) { return x > y ? x : y; }
    FN I lowest(M x)
    {
        I lanes[LANES];
        __builtin_memcpy(lanes, &x, sizeof x);
        for (int half = LANES / 2; half; half /= 2)
            for (int i = 0; i < half; i++) lanes[i] = lanes[i] < lanes[i + half] ? lanes[i] : lanes[i + half];
        return lanes[0];
    }
    FN I highest(M x) { return ~lowest(~x); }
    /* Between the bits of floats and integers of the same order; there and back. */
    FN M ordered(M bits) { return bits ^ ((bits >> (8 * sizeof(I) - 1)) & POSITIVE); }
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

    /* Lowest, highest, and how many are zero or small. */
    struct Extremes { V low = all(INF), high = all(-INF); M zero{}, small{}; };

    template <bool SMALL> FN void see(Extremes &e, V x, const Limits &limits)
    {
        e.low = lower(x, e.low), e.high = higher(x, e.high);
        e.zero = plus_zero(e.zero, size(x));
        if (SMALL) e.small = plus_less(e.small, size(x), all_bits(limits.small));
    }
    FN void join(Extremes &e, const Extremes &other)
    {
        e.low = lower(other.low, e.low), e.high = higher(other.high, e.high);
        e.zero += other.zero, e.small += other.small;
    }

    /* The same of 16-bit elements as integers, in half the operations: the largest signed one is the maximum if any element is
       positive, the largest unsigned one the minimum if any is negative. */
    struct HalfExtremes { Halves positive{}, negative{}, zero{}, small{}; };

    template <bool SMALL> FN void see_halves(HalfExtremes &e, const Element *from, const Limits &limits)
    {
        typedef Lanes<uint16_t>::type Unsigned;
        const Halves x = *(const Lanes<int16_t>::loose *)from, size = x & (int16_t)0x7fff;
        e.positive = x > e.positive ? x : e.positive;
        e.negative = (Unsigned)x > (Unsigned)e.negative ? x : e.negative;
        e.zero = plus_zero(e.zero, size);
        if (SMALL) e.small = plus_less(e.small, size, limits.small_half - Halves{});
    }
    FN void join_halves(Extremes &e, const HalfExtremes &halves)
    {
        V high[X::LOADS], low[X::LOADS];
        X::load(&halves.positive, high), X::load(&halves.negative, low);
        for (int l = 0; l < X::LOADS; l++) e.high = higher(high[l], e.high), e.low = lower(low[l], e.low);
        e.zero += (M)(((Words)halves.zero & 0xffff) + ((Words)halves.zero >> 16));
        e.small += (M)(((Words)halves.small & 0xffff) + ((Words)halves.small >> 16));
    }

    /* Whether extremes from a first pass are exact. 16-bit ones are if there are both signs; others unless they may be subnormal. */
    FN bool exact(const Extremes &e)
    {
        const bool low = any((M)(e.low <= -NORMAL)), high = any((M)(e.high >= NORMAL));
        if (HALF) return low && high;
        return (low || !any((M)(e.low < NORMAL))) && (high || !any((M)(e.high > -NORMAL)));
    }

    /* Whether squares near zero are the truth: all elements equal the pivot, and its own square can be held. */
    FN bool flat(F pivot, const Extremes &e)
    {
        if (pivot == 0 || any((M)(e.low != pivot) & (M)(e.low != INF)) || any((M)(e.high != pivot) & (M)(e.high != -INF))) return false;
        return !WIDE || ((double)pivot * pivot > MIN_SQUARE && (double)pivot * pivot < 1 / MIN_SQUARE);
    }

    /* Sums about a pivot: in F for a block, then in double. */
    struct Sums { V lane_sum{}, lane_square{}; Doubles sum{}, square{}; };
    struct Moments { double sum, square; };

    FN void add(Sums &s, V d)
    {
        s.lane_sum += d;
        s.lane_square += d * d;
    }
    FN void flush(Sums &s, Sums &other)
    {
        add_up<F>(s.lane_sum + other.lane_sum, s.sum);
        add_up<F>(s.lane_square + other.lane_square, s.square);
        s.lane_sum = s.lane_square = other.lane_sum = other.lane_square = V{};
    }
    FN Moments moments(const Sums &s) { return {sum_of<double>(s.sum), sum_of<double>(s.square)}; }
    FN bool fit(Moments m, double n) { return m.square == 0 || m.square <= MAX_SPREAD * (m.square - m.sum * m.sum / n); }

    /* Passes: what they take from each load, and from some lanes of the last one. AHEAD: elements that were not read before. */

    template <bool SMALL, bool PIVOT> struct FirstPass {
        static constexpr bool AHEAD = true;
        const Limits &limits;
        V pivot;
        Sums sums{};
        Extremes extremes{};
        HalfExtremes halves{};

        FN void take(FirstPass &p, const Element *from, const V *x)
        {
            if (HALF) see_halves<SMALL>(p.halves, from, p.limits);
            for (int l = 0; l < X::LOADS; l++) {
                if (!HALF) see<SMALL>(p.extremes, x[l], p.limits);
                add(p.sums, PIVOT ? x[l] - p.pivot : x[l]);
            }
        }
        FN void take_some(FirstPass &p, const V *x, const M *mask)
        {
            for (int l = 0; l < X::LOADS; l++) {
                Extremes &e = p.extremes;
                const V high = choose(mask[l], x[l], all(-INF)), other = choose(mask[l], x[l], all(INF));
                const V before = e.high;
                see<true>(e, other, p.limits);
                e.high = higher(high, before);
                add(p.sums, (V)((M)(x[l] - p.pivot) & mask[l]));
            }
        }
        FN void flush(FirstPass &p, FirstPass &other) { Kernel::flush(p.sums, other.sums); }
    };

    /* Everything but sums, of any data. Extremes are compared as integers in the order of floats. */
    struct LookAgain {
        static constexpr bool AHEAD = true;
        const Limits &limits;
        M low = all_bits(INF_BITS), high = all_bits(~INF_BITS), zero{}, small{}, num_nan{}, num_inf{}, num_large{};

        FN void take(LookAgain &p, const Element *, const V *x)
        {
            M mask[X::LOADS];
            for (int l = 0; l < X::LOADS; l++) mask[l] = ~M{};
            take_some(p, x, mask);
        }
        FN void take_some(LookAgain &p, const V *x, const M *mask)
        {
            for (int l = 0; l < X::LOADS; l++) {
                const M bits = choose(mask[l], size(x[l]), all_bits(INF_BITS)), finite = (M)(bits < INF_BITS), order = ordered((M)x[l]);
                p.low = lower(choose(finite, order, all_bits(INF_BITS)), p.low);
                p.high = higher(choose(finite, order, all_bits(~INF_BITS)), p.high);
                p.zero = plus_zero(p.zero, bits);
                p.small = plus_less(p.small, bits, all_bits(p.limits.small));
                p.num_nan = plus_less(p.num_nan, all_bits(INF_BITS), bits);
                p.num_inf -= (M)(bits == INF_BITS) & mask[l];
                p.num_large = plus_less(p.num_large, all_bits(p.limits.large), bits & mask[l]);
            }
        }
        FN void flush(LookAgain &, LookAgain &) {}
    };

    /* Sums again: about a better pivot; SCALE: scaled, of finite elements; LIFT: with subnormals, which are integers times 2^-149. */
    template <bool SCALE, bool LIFT> struct AddAgain {
        static constexpr bool AHEAD = false;
        V pivot, scale, unit;
        Sums sums{};

        FN V apart(AddAgain &p, V x)
        {
            if (!SCALE) return x - p.pivot;
            const M bits = size(x);
            V value = x;
            if (LIFT) {
                const M subnormal = (M)(bits < (I)1 << 23);
                const V lifted = __builtin_convertvector(bits & subnormal, V) * p.unit;
                value = (V)((M)(choose(subnormal, V{}, x) * p.scale) | (M)lifted | ((M)x & ~POSITIVE));
            } else
                value = x * p.scale;
            return (V)((M)(value - p.pivot) & (M)(bits < INF_BITS));
        }
        FN void take(AddAgain &p, const Element *, const V *x)
        {
            for (int l = 0; l < X::LOADS; l++) add(p.sums, apart(p, x[l]));
        }
        FN void take_some(AddAgain &p, const V *x, const M *mask)
        {
            for (int l = 0; l < X::LOADS; l++) add(p.sums, (V)((M)apart(p, x[l]) & mask[l]));
        }
        FN void flush(AddAgain &p, AddAgain &other) { Kernel::flush(p.sums, other.sums); }
    };

    struct CountLarge {
        static constexpr bool AHEAD = false;
        M large, count{};

        FN void take(CountLarge &p, const Element *, const V *x)
        {
            for (int l = 0; l < X::LOADS; l++) p.count = plus_less(p.count, p.large, size(x[l]));
        }
        FN void take_some(CountLarge &p, const V *x, const M *mask)
        {
            for (int l = 0; l < X::LOADS; l++) p.count = plus_less(p.count, p.large, size(x[l]) & mask[l]);
        }
        FN void flush(CountLarge &, CountLarge &) {}
    };

    /* Two of a pass take turns, so that one need not wait for the other's last addition. */
    template <class Pass> FN void each(const Element *x, int n, Pass &p, Pass &other)
    {
        V v[X::LOADS];
        const int whole = n / STEP * STEP;
        for (int i = 0; i < whole;) {
            const int end = i + BLOCK < whole ? i + BLOCK : whole;
            for (; i + 2 * STEP <= end; i += 2 * STEP) {
                /* The chunk after this one is on its way while this one is worked on: without it, work and memory take turns. */
                if (Pass::AHEAD)
                    for (int line = 0; line < 2 * ISA_BYTES; line += 64) __builtin_prefetch((const char *)(x + i) + CHUNK_BYTES + line, 0, 2);
                X::load(x + i, v), Pass::take(p, x + i, v);
                X::load(x + i + STEP, v), Pass::take(other, x + i + STEP, v);
            }
            if (i < end) X::load(x + i, v), Pass::take(p, x + i, v), i += STEP;
            Pass::flush(p, other);
        }
        if (whole == n) return;
        Element data[STEP] = {}, ones[STEP] = {};
        V one[X::LOADS];
        M mask[X::LOADS];
        __builtin_memcpy(data, x + whole, (n - whole) * sizeof(Element));
        for (int i = 0; i < n - whole; i++) ones[i] = X::ONE;
        X::load(data, v), X::load(ones, one);
        for (int l = 0; l < X::LOADS; l++) mask[l] = (M)(one[l] != 0);
        Pass::take_some(p, v, mask);
        Pass::flush(p, other);
    }

    template <bool SCALE, bool LIFT> static ISA_TARGET __attribute__((noinline)) Moments add_again(const Element *x, int n, F pivot, int exponent)
    {
        const V scale = all((F)power_of_two(-exponent)), unit = all(LIFT ? (F)power_of_two(-149 - exponent) : 0);
        AddAgain<SCALE, LIFT> p{all(pivot), scale, unit}, other = p;
        each(x, n, p, other);
        return moments(p.sums);
    }

    struct Tensor {
        Row &row;
        const Limits &limits;
        F pivot = 0;
        bool odd = false;                       /* the chunk before was not fit for the first pass */
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
        counts.num_large = count(p.num_large + other.num_large) - counts.num_nan;      /* as integers, NaN are beyond any limit */
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
        const int exponent = (int)(highest(higher(finite_size(e.low), finite_size(e.high))) >> (WIDE ? 52 : 23)) - (WIDE ? 1022 : 126);
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
        FirstPass<SMALL, PIVOT> p{t.limits, all(t.pivot)}, other = p;
        each(x, n, p, other);
        Moments m = moments(p.sums);
        for (int attempt = 0; attempt < 3 && m.square < __builtin_inf() && !fit(m, n); attempt++)
            m = add_again<false, false>(x, n, t.pivot += (F)(m.sum / n), 0);
        if (!(m.square < __builtin_inf())) return odd_chunk(t, x, n);
        Extremes &e = p.extremes;
        join(e, other.extremes);
        if (HALF) join_halves(e, p.halves), join_halves(e, other.halves);
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

/* The yardstick: what it costs to read the same bytes. */
static ISA_TARGET uint64_t read(const void *from, int64_t num_bytes)
{
    typedef Lanes<uint64_t> L;
    L::type sums[4] = {};
    int64_t i = 0;
    for (; i + 4 * ISA_BYTES <= num_bytes; i += 4 * ISA_BYTES)
        for (int u = 0; u < 4; u++) sums[u] += *(const L::loose *)((const char *)from + i + u * ISA_BYTES);
    uint64_t sum = sum_of<uint64_t>(sums[0] + sums[1] + sums[2] + sums[3]);
    for (; i < num_bytes; i++) sum += ((const unsigned char *)from)[i];
    return sum;
}

}
