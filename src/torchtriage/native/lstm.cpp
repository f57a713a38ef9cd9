/* One LSTM layer over complete sequences, forward and backward, given the products of the inputs and the input weights.
   Plain C interface, called by pointer; no Python or torch headers. All tensors are float32 and contiguous. One thread.
   Sizes: T steps, B sequences, H units. */

#include "processor.h"

#include <stdlib.h>

#define FN static inline __attribute__((always_inline)) ISA_TARGET

namespace {

struct Sizes {
    int64_t T, B, H;
};

/* z [T, B, 4H]: the input part of the gates i, f, g, o; w [4H, H]: the recurrent weights. The gates (after their
   sigmoid or tanh) and the cells are outputs that the backward needs. */
struct Forward {
    const float *z, *keep, *h, *c, *w;
    float *y, *c_last, *gates, *cells;
};

/* grad_h and grad_c are the gradients of the last state on entry, and those of the first state on return. */
struct Backward {
    const float *grad_y, *keep, *c, *w, *gates, *cells;
    float *grad_z, *grad_h, *grad_c;
};

#define ISA plain
#define ISA_TARGET
#define ISA_BYTES 16
#include "lstm_kernel.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_BYTES

#if ON_X86
#define ISA avx2
#define ISA_TARGET __attribute__((target("avx2,fma")))
#define ISA_BYTES 32
#include "lstm_kernel.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_BYTES

#define ISA avx512
#define ISA_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define ISA_BYTES 64
#include "lstm_kernel.h"
#endif

struct Isa {
    const char *name;
    void (*forward)(const Sizes &, const Forward &, float *);
    void (*backward)(const Sizes &, const Backward &, float *);
};

/* In the order of `widest`. */
const Isa ISAS[] = {
    {"plain", plain::forward, plain::backward},
#if ON_X86
    {"avx2", avx2::forward, avx2::backward},
    {"avx512", avx512::forward, avx512::backward},
#endif
};

/* Memory for the weights in the kernel's layout: padded to full panels, whose columns are at most four vectors of
   64 bytes, and aligned to such vectors. */
struct Panels {
    void *memory;
    explicit Panels(int64_t H) : memory(malloc((size_t)(4 * H * ((H + 63) / 64 * 64)) * sizeof(float) + 64)) {}
    ~Panels() { free(memory); }
    float *aligned() const { return (float *)(((uintptr_t)memory + 63) & ~(uintptr_t)63); }
};

/* Returns 0, or 1 if there is no memory. Gradients fade into subnormals over a long sequence; these are flushed to 0,
   because they would take a hundred times as long. */
template <class Arguments>
int run(void (*kernel)(const Sizes &, const Arguments &, float *), const Sizes &sizes, const Arguments &arguments)
{
    const Panels panels(sizes.H);
    if (!panels.memory) return 1;
    const Subnormals mode(Subnormals::FLUSH);
    kernel(sizes, arguments, panels.aligned());
    return 0;
}

}

EXPORT int lstm_widest(void) { return widest(); }

EXPORT const char *lstm_isa(int isa) { return isa >= 0 && isa <= widest() ? ISAS[isa].name : 0; }

EXPORT int lstm_forward(int isa, int64_t T, int64_t B, int64_t H, const float *z, const float *keep, const float *h,
                        const float *c, const float *w, float *y, float *c_last, float *gates, float *cells)
{
    return run(ISAS[isa].forward, {T, B, H}, Forward{z, keep, h, c, w, y, c_last, gates, cells});
}

EXPORT int lstm_backward(int isa, int64_t T, int64_t B, int64_t H, const float *grad_y, const float *keep,
                         const float *c, const float *w, const float *gates, const float *cells, float *grad_z, float *grad_h, float *grad_c)
{
    return run(ISAS[isa].backward, {T, B, H}, Backward{grad_y, keep, c, w, gates, cells, grad_z, grad_h, grad_c});
}
