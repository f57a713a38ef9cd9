/* Norm, mean, standard deviation, extremes and counts of many tensors, each read once from memory. Plain C interface,
   called by pointer; no Python or torch headers. One thread, unless the caller gives a team of threads. */

#include "processor.h"

#define FN static inline __attribute__((always_inline)) ISA_TARGET

namespace {

/* A row of the table; the order of its columns is that of telemetry/statistics/columns.py. */
struct Row {
    double norm, mean, std, min, max, max_abs, num_nan, num_inf, num_zero, num_small, num_large, num_elements;
};

/* Moments of the elements so far, in units of 2^exponent. */
struct Merged {
    double num, mean, deviations, squares;
    int exponent;
};

double scaled(double value, int exponent) { return exponent ? __builtin_ldexp(value, exponent) : value; }

/* Adds `num` elements, given their sums about a pivot. */
void merge(Merged &into, double num, double pivot, double sum, double square, int exponent)
{
    const bool zeros = square == 0 && pivot == 0;       /* zeros fit any unit, so they must not choose a larger one */
    const int unit = into.squares == 0 || (!zeros && exponent > into.exponent) ? exponent : into.exponent;
    const double offset = sum / num;
    const double mean = scaled(pivot + offset, exponent - unit);
    const double deviations = scaled(square - sum * offset, 2 * (exponent - unit));
    const double squares = scaled(square + pivot * (2 * sum + num * pivot), 2 * (exponent - unit));
    into.mean = scaled(into.mean, into.exponent - unit);
    into.deviations = scaled(into.deviations, 2 * (into.exponent - unit));
    into.squares = scaled(into.squares, 2 * (into.exponent - unit));
    const double share = num / (into.num + num), apart = mean - into.mean;
    into.deviations += (deviations > 0 ? deviations : 0) + apart * apart * into.num * share;
    into.mean += apart * share;
    into.squares += squares;
    into.num += num;
    into.exponent = unit;
}

void finish(Row &row, const Merged &merged, int64_t num, double low, double high)
{
    row.num_elements = (double)num;
    if (!merged.num) return;
    row.norm = scaled(__builtin_sqrt(merged.squares), merged.exponent);
    row.mean = scaled(merged.mean, merged.exponent);
    row.std = scaled(__builtin_sqrt(merged.deviations / merged.num), merged.exponent);
    row.min = low, row.max = high, row.max_abs = high > -low ? high : -low;
}

double power_of_two(int exponent) { return __builtin_ldexp(1, exponent); }

/* The nearest F that is not below / not above a limit, so that a comparison in F counts the same elements as one in
   double. */
template <class F> F above(double limit)
{
    F near = (F)limit;
    return (double)near < limit ? (F)(sizeof(F) == 4 ? __builtin_nextafterf((float)near, __builtin_inff()) : near) : near;
}
template <class F> F below(double limit)
{
    F near = (F)limit;
    return (double)near > limit ? (F)(sizeof(F) == 4 ? __builtin_nextafterf((float)near, -__builtin_inff()) : near) : near;
}

constexpr int CHUNK_BYTES = 32768, STREAMS = 4, LINE_BYTES = 64;

#define ISA plain
#define ISA_TARGET
#define ISA_BYTES 16
#define ISA_F16C 0
#include "tensor_stats_lanes.h"
#include "tensor_stats_passes.h"
#include "tensor_stats_kernel.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_BYTES
#undef ISA_F16C

#if ON_X86
#define ISA avx2
#define ISA_TARGET __attribute__((target("avx2,fma,f16c")))
#define ISA_BYTES 32
#define ISA_F16C 1
#include "tensor_stats_lanes.h"
#include "tensor_stats_passes.h"
#include "tensor_stats_kernel.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_BYTES

#define ISA avx512
#define ISA_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define ISA_BYTES 64
#include "tensor_stats_lanes.h"
#include "tensor_stats_passes.h"
#include "tensor_stats_kernel.h"
#endif

struct Isa {
    const char *name;
    const plain::Run *run;
    uint64_t (*read)(const void *, int64_t);
};

/* In the order of `widest`. */
const Isa ISAS[] = {
    {"plain", plain::RUN, plain::read},
#if ON_X86
    {"avx2", avx2::RUN, avx2::read},
    {"avx512", avx512::RUN, avx512::read},
#endif
};

/* All tensors of a call; `next` is the first that no thread has started. */
struct Work {
    const plain::Run *run;
    int64_t num_tensors;
    const int64_t *pointers, *nums;
    const int32_t *dtypes;
    double small, large;
    Row *table;
    int64_t next;
};

using Team = void (*)(void (*)(void *), void *, unsigned num_threads, unsigned flags);

/* The work of each thread: one tensor after the other, until none is left. */
void share_in(void *given)
{
    Work &work = *(Work *)given;
    const Subnormals mode(Subnormals::EXACT);
    for (int64_t i; (i = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED)) < work.num_tensors;) {
        Row row = {};
        if (work.nums[i])
            work.run[work.dtypes[i]]((const void *)(intptr_t)work.pointers[i], work.nums[i], work.small, work.large, row);
        work.table[i] = row;
    }
}

}

EXPORT int tensor_stats_widest(void) { return widest(); }

EXPORT const char *tensor_stats_isa(int isa) { return isa >= 0 && isa <= widest() ? ISAS[isa].name : 0; }

/* table: num_tensors rows. dtypes: 0 float32, 1 float64, 2 bfloat16, 3 float16. A limit of 0 or infinity counts
   nothing. A null pointer means a tensor without elements. team: GOMP_parallel of an OpenMP runtime, or null for this
   thread alone. Returns 0, or 1 + the index of a tensor with invalid arguments (the table is then unchanged). */
EXPORT int64_t tensor_stats_run(int isa, int64_t num_tensors, const int64_t *pointers, const int64_t *nums,
                                const int32_t *dtypes, double small, double large, double *table, Team team, int num_threads)
{
    for (int64_t i = 0; i < num_tensors; i++)
        if (dtypes[i] < 0 || dtypes[i] > 3 || nums[i] < 0 || (nums[i] && !pointers[i])) return 1 + i;
    Work work = {ISAS[isa].run, num_tensors, pointers, nums, dtypes, small, large, (Row *)table, 0};
    if (team && num_threads > 1)
        team(share_in, &work, (unsigned)num_threads, 0);
    else
        share_in(&work);
    return 0;
}

EXPORT uint64_t tensor_stats_read(int isa, int64_t num_tensors, const int64_t *pointers, const int64_t *num_bytes)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < num_tensors; i++) sum += ISAS[isa].read((const void *)(intptr_t)pointers[i], num_bytes[i]);
    return sum;
}
