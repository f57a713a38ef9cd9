/* A pass over a chunk: extremes and counts, sums, or both. Included once for each instruction set, after
   tensor_stats_lanes.h.

   Counts use integers, because floats of one sign are in the order of their bits. So subnormals are counted correctly
   even while the processor treats them as zero in sums, where they are too small to matter. */

namespace ISA {

template <class X> struct Passes {
    typedef typename X::F F;
    typedef typename X::I I;
    typedef typename X::Element Element;
    typedef typename Lanes<F>::type V;
    typedef typename Lanes<I>::type M;
    static constexpr bool WIDE = sizeof(F) == 8, HALF = sizeof(Element) == 2;
    static constexpr int LANES = ISA_BYTES / sizeof(F), STEP = LANES * X::LOADS;
    static constexpr int CHUNK = CHUNK_BYTES / sizeof(Element);
    static constexpr int BLOCK = 2 * 16 * LANES;      /* each lane adds at most 16 floats, then a double */
    static constexpr F INF = (F)__builtin_inf();
    static constexpr I POSITIVE = (I)(~(uint64_t)0 >> (65 - 8 * sizeof(I))), INF_BITS = (I)(WIDE ? 0x7ffll << 52 : 0xffll << 23);

    /* The limits as bits of F; the small one also as bits of a 16-bit element. */
    struct Limits { I small, large; int16_t small_half; };

    FN V all(F value) { return value - V{}; }
    FN M all_bits(I value) { return value - M{}; }
    FN M size(V x) { return (M)x & POSITIVE; }
    template <class T> FN T choose(M mask, T x, T y) { return (T)(((M)x & mask) | ((M)y & ~mask)); }
    template <class T> FN T lower(T x, T y) { return x < y ? x : y; }
    template <class T> FN T higher(T x, T y) { return x > y ? x : y; }
    /* Converts the bits of floats to integers of the same order, and back. */
    FN M ordered(M bits) { return bits ^ ((bits >> (8 * sizeof(I) - 1)) & POSITIVE); }

    /* Lowest, highest, and the numbers of zero and small elements. */
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

    /* The same for 16-bit elements as integers, in half the operations: the largest signed integer is the maximum if
       any element is positive, the largest unsigned integer is the minimum if any is negative. */
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

    /* Sums about a pivot: in F for a block, then in double. */
    struct Sums { V lane_sum{}, lane_square{}; Doubles sum{}, square{}; };

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

    /* Passes: their work on each load, and on some lanes of the last load. AHEAD: the elements were not read before. */

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
        FN void flush(FirstPass &p, FirstPass &other) { Passes::flush(p.sums, other.sums); }
    };

    /* Everything but sums, for any data. Extremes are compared as integers in the order of floats. */
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

    /* Sums again, about a better pivot. SCALE: scaled, over finite elements. LIFT: with subnormals, as integers times
       2^-149. */
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
        FN void flush(AddAgain &p, AddAgain &other) { Passes::flush(p.sums, other.sums); }
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

    /* Two accumulators of a pass alternate, so that neither waits for the last addition of the other. */
    template <class Pass> FN void each(const Element *x, int n, Pass &p, Pass &other)
    {
        if constexpr (Pass::AHEAD)
            if (n == CHUNK) return each_of_chunk(x, p, other);
        V v[X::LOADS];
        const int whole = n / STEP * STEP;
        for (int i = 0; i < whole;) {
            const int end = i + BLOCK < whole ? i + BLOCK : whole;
            for (; i + 2 * STEP <= end; i += 2 * STEP) {
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

    /* A full chunk, read at STREAMS places in turn, so that the processor looks up the addresses of that many pages
       at once. The next chunk is prefetched meanwhile; without that, computing and reading memory would alternate. */
    template <class Pass> FN void each_of_chunk(const Element *x, Pass &p, Pass &other)
    {
        constexpr int PART = CHUNK / STREAMS, LINE = LINE_BYTES / sizeof(Element);
        static_assert(BLOCK % (STREAMS * LINE) == 0 && CHUNK % BLOCK == 0, "sums are flushed between lines");
        V v[X::LOADS];
        for (int i = 0; i < PART;) {
            for (const int end = i + BLOCK / STREAMS; i < end; i += LINE)
                for (const Element *line = x + i; line < x + i + CHUNK; line += 2 * PART) {
                    __builtin_prefetch(line + CHUNK, 0, 2), __builtin_prefetch(line + PART + CHUNK, 0, 2);
                    for (const Element *at = line; at < line + LINE; at += STEP) {
                        X::load(at, v), Pass::take(p, at, v);
                        X::load(at + PART, v), Pass::take(other, at + PART, v);
                    }
                }
            Pass::flush(p, other);
        }
    }
};

}
