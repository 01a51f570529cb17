/* Blackscholes: the prices of European options by the closed formula of Black and Scholes, in the manner of PARSEC's
 * workload of that name. A portfolio of options is read once, then priced in several rounds.
 *
 * Memory layout, all on the heap: `portfolio`, an array of records, is written once by the master and read again only to
 * verify. `inputs` is one block of five arrays of float (spot, strike, rate, volatility, time), read by the regions;
 * `kinds` says call or put. `prices` is all that a region writes, each worker its own part of it, every round the same
 * values.
 *
 * Verified, each option: the price by another method (the error function, in double precision) to 2e-6 of the strike, and
 * of each pair of a call and a put on the same terms the parity, call - put = spot - strike exp(-rate time). For some, the
 * integral of the payoff over the lognormal distribution, which knows no closed formula. --iterations N does N rounds.
 */
#include "program.h"

#include <math.h>

#define TOLERANCE 2e-6 /* of the strike: float arithmetic through the distribution function */
#define INTEGRALS 64   /* options that are integrated */
#define INTERVALS 4096 /* of an integral, even */

typedef struct {
    char name;
    int options, rounds;
} blackscholes_class;

static const blackscholes_class classes[] = {
    {'S', 4096, 50}, {'W', 65536, 50}, {'A', 2097152, 40}, {'B', 8388608, 40}, {'C', 33554432, 40},
};

enum { CALL, PUT };

typedef struct {
    float spot, strike, rate, dividend, volatility, time, dividends_paid, reference;
    char kind;
} option;

static option *portfolio;
static float *inputs;
static int *kinds;
static float *prices;

/* The arrays inside `inputs`. */
static float *spots, *strikes, *rates, *volatilities, *times;

static void *allocated(size_t bytes) {
    void *block = malloc(bytes);
    if (!block) {
        fprintf(stderr, "blackscholes: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return block;
}

/* Returns a number in [0, 1), from the number of an option and of the quantity that is drawn for it. */
static double drawn(uint64_t which, uint64_t what) {
    uint64_t x = (which * 8 + what + 1) * 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/* Options come in pairs, a call and a put on the same terms. */
static void make_portfolio(int n) {
    for (int i = 0; i < n; i++) {
        uint64_t pair = (uint64_t)i / 2;
        option *o = &portfolio[i];
        o->strike = (float)(10.0 + 90.0 * drawn(pair, 0));
        o->spot = o->strike * (float)(0.7 + 0.6 * drawn(pair, 1));
        o->rate = (float)(0.01 + 0.09 * drawn(pair, 2));
        o->volatility = (float)(0.1 + 0.5 * drawn(pair, 3));
        o->time = (float)(0.1 + 0.9 * drawn(pair, 4));
        o->dividend = o->dividends_paid = o->reference = 0.0f;
        o->kind = i % 2 ? 'P' : 'C';
    }
}

/* Copies records to arrays, which the pricing reads. */
static void unpack_portfolio(int n) {
    spots = inputs, strikes = spots + n, rates = strikes + n, volatilities = rates + n, times = volatilities + n;
    for (int i = 0; i < n; i++) {
        const option *o = &portfolio[i];
        spots[i] = o->spot;
        strikes[i] = o->strike;
        rates[i] = o->rate;
        volatilities[i] = o->volatility;
        times[i] = o->time;
        kinds[i] = o->kind == 'P' ? PUT : CALL;
    }
}

/* The normal distribution by a polynomial (Abramowitz and Stegun, 26.2.17), good to 7.5e-8. */
static inline float normal_by_polynomial(float x) {
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(x));
    float series = 1.330274429f;
    series = series * k - 1.821255978f;
    series = series * k + 1.781477937f;
    series = series * k - 0.356563782f;
    series = series * k + 0.319381530f;
    float above = 0.39894228040f * expf(-0.5f * x * x) * series * k;
    return x < 0.0f ? above : 1.0f - above;
}

static inline float price_of(float spot, float strike, float rate, float volatility, float time, int kind) {
    float deviation = volatility * sqrtf(time);
    float d1 = (logf(spot / strike) + (rate + 0.5f * volatility * volatility) * time) / deviation;
    float n1 = normal_by_polynomial(d1), n2 = normal_by_polynomial(d1 - deviation);
    float present = strike * expf(-rate * time);
    return kind == CALL ? spot * n1 - present * n2 : present * (1.0f - n2) - spot * (1.0f - n1);
}

static void price_all(int n) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++)
        prices[i] = price_of(spots[i], strikes[i], rates[i], volatilities[i], times[i], kinds[i]);
}

/* Returns the price by the error function, in double precision and from the record. */
static double price_by_erfc(const option *o) {
    double deviation = o->volatility * sqrt(o->time), present = o->strike * exp(-(double)o->rate * o->time);
    double d1 = log(o->spot / present) / deviation + 0.5 * deviation, d2 = d1 - deviation;
    double sign = o->kind == 'P' ? -1.0 : 1.0;
    return sign * 0.5 * (o->spot * erfc(-sign * d1 * M_SQRT1_2) - present * erfc(-sign * d2 * M_SQRT1_2));
}

/* Returns the price as the average payoff: Simpson's rule over the logarithm of the spot at the end, from the strike on. */
static double price_by_integral(const option *o) {
    double deviation = o->volatility * sqrt(o->time);
    double mean = log(o->spot) + (o->rate - 0.5 * (double)o->volatility * o->volatility) * o->time;
    double edge = (log(o->strike) - mean) / deviation;
    double from = o->kind == 'P' ? fmin(edge, 0.0) - 10.0 : edge, to = o->kind == 'P' ? edge : fmax(edge, 0.0) + 10.0;
    double width = (to - from) / INTERVALS, sum = 0.0;
    for (int i = 0; i <= INTERVALS; i++) {
        double z = from + i * width, paid = fabs(exp(mean + deviation * z) - o->strike);
        sum += (i == 0 || i == INTERVALS ? 1.0 : i % 2 ? 4.0 : 2.0) * paid * exp(-0.5 * z * z);
    }
    return exp(-(double)o->rate * o->time) * sum * width / 3.0 / sqrt(2.0 * M_PI);
}

/* Returns the greatest error of a price, as a share of its strike. */
static double greatest_error(int n) {
    double greatest = 0.0;
#pragma omp parallel for schedule(static) reduction(max : greatest)
    for (int i = 0; i < n; i++) {
        const option *o = &portfolio[i];
        greatest = fmax(greatest, fabs(prices[i] - price_by_erfc(o)) / o->strike);
        if (i % 2) {
            double parity = o->spot - o->strike * exp(-(double)o->rate * o->time);
            greatest = fmax(greatest, 0.5 * fabs((double)prices[i - 1] - prices[i] - parity) / o->strike);
        }
        if (i % (n / INTEGRALS + 1) == 0)
            greatest = fmax(greatest, fabs(prices[i] - price_by_integral(o)) / o->strike);
        /* A price that is not a number passes every maximum. */
        if (!isfinite(prices[i])) greatest = 1.0;
    }
    return greatest;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const blackscholes_class *c = classes;
    while (c->name != o.class_) c++;
    int n = c->options, rounds = o.iterations ? o.iterations : c->rounds;

    portfolio = allocated((size_t)n * sizeof *portfolio);
    inputs = allocated((size_t)n * 5 * sizeof *inputs);
    kinds = allocated((size_t)n * sizeof *kinds);
    prices = allocated((size_t)n * sizeof *prices);
    make_portfolio(n);
    unpack_portfolio(n);
    printf("Blackscholes class %c: %d options, %d rounds\n", c->name, n, rounds);

    double start = program_seconds();
    for (int round = 0; round < rounds; round++) price_all(n);
    double seconds = program_seconds() - start;

    double error = greatest_error(n);
    uint64_t sum = program_checksum(PROGRAM_CHECKSUM_SEED, prices, (size_t)n * sizeof *prices);
    printf("Greatest error: %.3e of the strike\n", error);
    free(prices);
    free(kinds);
    free(inputs);
    free(portfolio);
    /* Every round gives the same prices, so that any number of them can be verified. */
    return program_verdict(sum, seconds, 1, error <= TOLERANCE, error, 0.0, rounds, c->rounds);
}
