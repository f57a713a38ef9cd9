/* The steps of an LSTM, forward and backward. Included once for each instruction set, so it has no #pragma once: ISA
   names its namespace, ISA_TARGET lets the compiler use it, ISA_BYTES is the size of its vectors.

   Most of the time goes into the products with the recurrent weights. Each call packs the weights once into panels
   with four vectors per row. A tile is a few sequences times one panel, and its sums stay in registers. In the
   forward, the four vectors are the four gates of the same units. */

namespace ISA {

typedef float Floats __attribute__((vector_size(ISA_BYTES)));
typedef uint32_t Words __attribute__((vector_size(ISA_BYTES)));
typedef float Loose __attribute__((vector_size(ISA_BYTES), aligned(4), may_alias));

constexpr int LANES = ISA_BYTES / 4;
/* Four sums per row, beside the weights, fill the registers: 32 with AVX-512, 16 otherwise. */
constexpr int MAX_ROWS = ISA_BYTES == 64 ? 6 : 3;

/* Loads the first `num` lanes; the others are 0. */
FN Floats load(const float *from, int64_t num)
{
    if (num >= LANES) return *(const Loose *)from;
    Floats x = {};
    for (int64_t i = 0; i < num; i++) x[i] = from[i];
    return x;
}

FN void store(float *to, Floats x, int64_t num)
{
    if (num >= LANES) *(Loose *)to = x;
    else for (int64_t i = 0; i < num; i++) to[i] = x[i];
}

/* Clamps to [-limit, limit]; NaN stays NaN. */
FN Floats clamped(Floats x, float limit)
{
    const Floats low = Floats{} - limit, high = Floats{} + limit;
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* e^x = power * (1 + rest), with a power of two; |x| is at most 87. The polynomial is (e^r - 1 - r) / r^2 for e^r
   within 2^+-0.5. */
FN void exponential(Floats x, Floats &power, Floats &rest)
{
    const Floats shifted = x * 0x1.715476p0f + 0x1.8p23f, n = shifted - 0x1.8p23f;      /* n is in the last bits */
    const Floats r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
    const Floats q = 0.5f + r * (0x1.5554dcp-3f + r * (0x1.5554e8p-5f + r * (0x1.120ba6p-7f + r * 0x1.6d4366p-10f)));
    power = (Floats)(((Words)shifted + 127) << 23);
    rest = r + r * r * q;
}

/* 1 / x, for x that is neither 0 nor infinite. A division takes as long as eight products. */
FN Floats inverse(Floats x)
{
#if ISA_BYTES == 64
    const Floats near = (Floats)_mm512_maskz_rcp14_ps(0xffff, (__m512)x);
    return near + near * (1 - x * near);
#else
    return 1 / x;
#endif
}

FN Floats sigmoid(Floats x)
{
    Floats power, rest;
    exponential(clamped(-x, 87), power, rest);
    return inverse(1 + (power + power * rest));
}

/* Through e^2x - 1, which is exact to the last bits for small x. */
FN Floats tanh(Floats x)
{
    Floats power, rest;
    exponential(clamped(2 * x, 20), power, rest);
    const Floats less_one = (power - 1) + power * rest;
    return less_one * inverse(less_one + 2);
}

/* tile[row][4] = the sum over k of rows[row][k] * panel[k][4] */
template <int ROWS>
ISA_TARGET void products(const float *rows, int64_t stride, const float *panel, int64_t num, Floats *tile)
{
    Floats sums[ROWS][4];
#define EACH_SUM for (int row = 0; row < ROWS; row++) for (int part = 0; part < 4; part++)
    EACH_SUM sums[row][part] = Floats{};
    for (int64_t k = 0; k < num; k++)
        EACH_SUM sums[row][part] += rows[row * stride + k] * ((const Floats *)panel)[4 * k + part];
    EACH_SUM tile[4 * row + part] = sums[row][part];
#undef EACH_SUM
}

typedef void Products(const float *, int64_t, const float *, int64_t, Floats *);
Products *const PRODUCTS[MAX_ROWS + 1] = {
    0, products<1>, products<2>, products<3>,
#if ISA_BYTES == 64
    products<4>, products<5>, products<6>,
#endif
};

/* Blocks of rows of nearly equal size: a short last block would leave the processor idle. */
struct Blocks {
    int64_t num_rows, num = (num_rows + MAX_ROWS - 1) / MAX_ROWS;
    int64_t begin(int64_t block) const { return num_rows * block / num; }
};

/* panels[unit block][k][gate][lane] */
ISA_TARGET void pack_gates(const float *w, int64_t H, float *panels)
{
    for (int64_t unit = 0; unit < H; unit += LANES, panels += H * 4 * LANES)
        for (int gate = 0; gate < 4; gate++)
            for (int64_t lane = 0; lane < LANES; lane++) {
                const float *row = w + (gate * H + unit + lane) * H;
                for (int64_t k = 0; k < H; k++) panels[(4 * k + gate) * LANES + lane] = unit + lane < H ? row[k] : 0;
            }
}

/* panels[column block][gate unit][column] */
ISA_TARGET void pack_columns(const float *w, int64_t H, float *panels)
{
    for (int64_t column = 0; column < H; column += 4 * LANES)
        for (int64_t k = 0; k < 4 * H; k++, panels += 4 * LANES)
            for (int64_t i = 0; i < 4 * LANES; i++) panels[i] = column + i < H ? w[k * H + column + i] : 0;
}

ISA_TARGET void forward(const Sizes &s, const Forward &at, float *panels)
{
    const int64_t H = s.H, step = s.B * H;
    const Blocks blocks = {s.B};
    Floats tile[4 * MAX_ROWS];
    pack_gates(at.w, H, panels);
    for (int64_t t = 0; t < s.T; t++) {
        const float *h_before = t ? at.y + (t - 1) * step : at.h, *c_before = t ? at.cells + (t - 1) * step : at.c;
        for (int64_t unit = 0; unit < H; unit += LANES)
            for (int64_t block = 0; block < blocks.num; block++) {
                const int64_t begin = blocks.begin(block), end = blocks.begin(block + 1);
                PRODUCTS[end - begin](h_before + begin * H, H, panels + unit * 4 * H, H, tile);
                for (int64_t b = begin; b < end; b++) {
                    const int64_t row = t * s.B + b, to = row * H + unit, gate_to = row * 4 * H + unit, num = H - unit;
                    const float keep = at.keep[row];
                    const Floats *sum = tile + 4 * (b - begin);
                    const Floats i = sigmoid(load(at.z + gate_to, num) + keep * sum[0]);
                    const Floats f = sigmoid(load(at.z + gate_to + H, num) + keep * sum[1]);
                    const Floats g = tanh(load(at.z + gate_to + 2 * H, num) + keep * sum[2]);
                    const Floats o = sigmoid(load(at.z + gate_to + 3 * H, num) + keep * sum[3]);
                    const Floats c = f * (keep * load(c_before + b * H + unit, num)) + i * g;
                    store(at.gates + gate_to, i, num);
                    store(at.gates + gate_to + H, f, num);
                    store(at.gates + gate_to + 2 * H, g, num);
                    store(at.gates + gate_to + 3 * H, o, num);
                    store(at.cells + to, c, num);
                    store(at.y + to, o * tanh(c), num);
                }
            }
    }
    __builtin_memcpy(at.c_last, s.T ? at.cells + (s.T - 1) * step : at.c, step * sizeof(float));
}

/* Before each step t, grad_h and grad_c are the gradients of the state before step t + 1; after it, of that before t.
   */
ISA_TARGET void backward(const Sizes &s, const Backward &at, float *panels)
{
    const int64_t H = s.H, step = s.B * H;
    const Blocks blocks = {s.B};
    Floats tile[4 * MAX_ROWS];
    pack_columns(at.w, H, panels);
    for (int64_t t = s.T - 1; t >= 0; t--) {
        const float *c_before = t ? at.cells + (t - 1) * step : at.c;
        for (int64_t b = 0; b < s.B; b++)
            for (int64_t unit = 0; unit < H; unit += LANES) {
                const int64_t row = t * s.B + b, gate_at = row * 4 * H + unit, state_at = b * H + unit, num = H - unit;
                const float keep = at.keep[row];
                const Floats i = load(at.gates + gate_at, num), f = load(at.gates + gate_at + H, num);
                const Floats g = load(at.gates + gate_at + 2 * H, num), o = load(at.gates + gate_at + 3 * H, num);
                const Floats tanh_c = tanh(load(at.cells + row * H + unit, num));
                const Floats grad_h = load(at.grad_y + row * H + unit, num) + load(at.grad_h + state_at, num);
                const Floats grad_c = load(at.grad_c + state_at, num) + grad_h * o * (1 - tanh_c * tanh_c);
                store(at.grad_z + gate_at, grad_c * g * i * (1 - i), num);
                store(at.grad_z + gate_at + H, grad_c * (keep * load(c_before + state_at, num)) * f * (1 - f), num);
                store(at.grad_z + gate_at + 2 * H, grad_c * i * (1 - g * g), num);
                store(at.grad_z + gate_at + 3 * H, grad_h * tanh_c * o * (1 - o), num);
                store(at.grad_c + state_at, keep * (grad_c * f), num);
            }
        for (int64_t column = 0; column < H; column += 4 * LANES)
            for (int64_t block = 0; block < blocks.num; block++) {
                const int64_t begin = blocks.begin(block), end = blocks.begin(block + 1);
                PRODUCTS[end - begin](at.grad_z + (t * s.B + begin) * 4 * H, 4 * H, panels + column * 4 * H, 4 * H, tile);
                for (int64_t b = begin; b < end; b++)
                    for (int part = 0; part < 4; part++) {
                        const int64_t from = column + part * LANES;
                        if (from < H) store(at.grad_h + b * H + from, at.keep[t * s.B + b] * tile[4 * (b - begin) + part], H - from);
                    }
            }
    }
}

}
