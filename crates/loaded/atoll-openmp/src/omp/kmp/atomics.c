/* Atomic operations of LLVM's ABI: on a place in memory, with an operand, perhaps returning the value before or after.
 *
 * Numbers of up to eight bytes are exchanged as integers until no other thread came between; larger ones are changed under the
 * lock that `atomics.rs` lends. That file exports these functions under their names without "atoll" in front.
 *
 * Source for the names: LLVM's openmp/runtime/src/kmp_atomic.h.
 */
#include <complex.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

void atoll_atomic_begin(void);
void atoll_atomic_end(void);

typedef float complex c4;
typedef double complex c8;
typedef long double complex c10;

/* What an operator makes of `a`, the value in memory, and `b`, the operand. */
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define DIV(a, b) ((a) / (b))
#define ANDB(a, b) ((a) & (b))
#define ORB(a, b) ((a) | (b))
#define XOR(a, b) ((a) ^ (b))
#define EQV(a, b) ((a) ^ ~(b))
#define SHL(a, b) ((a) << (b))
#define SHR(a, b) ((a) >> (b))
#define ANDL(a, b) ((a) && (b))
#define ORL(a, b) ((a) || (b))
#define MIN(a, b) ((b) < (a) ? (b) : (a))
#define MAX(a, b) ((a) < (b) ? (b) : (a))
/* The operators with their operands exchanged. */
#define SUB_REV(a, b) ((b) - (a))
#define DIV_REV(a, b) ((b) / (a))
#define SHL_REV(a, b) ((b) << (a))
#define SHR_REV(a, b) ((b) >> (a))
#define PUT(a, b) (b)

/* Sets `before` and `after` around one operation of type T, exchanged as an integer of type I. */
#define EXCHANGED(T, I, place, OP, operand)                                                                            \
    T before, after;                                                                                                   \
    I old = __atomic_load_n((I *)(place), __ATOMIC_RELAXED), new;                                                      \
    do {                                                                                                               \
        memcpy(&before, &old, sizeof(T));                                                                              \
        after = (T)OP(before, operand);                                                                                \
        memcpy(&new, &after, sizeof(T));                                                                               \
    } while (!__atomic_compare_exchange_n((I *)(place), &old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))

/* Sets `before` and `after` around one operation under the lock. */
#define LOCKED(T, I, place, OP, operand)                                                                               \
    T before, after;                                                                                                   \
    atoll_atomic_begin();                                                                                              \
    before = *(place);                                                                                                 \
    after = (T)OP(before, operand);                                                                                    \
    *(place) = after;                                                                                                  \
    atoll_atomic_end()

#define NAME(name) atoll__kmpc_atomic_##name
#define HERE void *location, int thread

#define UPDATE(name, HOW, T, I, R, OP)                                                                                 \
    void NAME(name)(HERE, T * place, R operand) {                                                                      \
        (void)location, (void)thread;                                                                                  \
        HOW(T, I, place, OP, operand);                                                                                 \
        (void)before, (void)after;                                                                                     \
    }
/* A function that returns the value before, or after if `flag` is set. */
#define CAPTURE(name, HOW, T, I, R, OP)                                                                                \
    T NAME(name)(HERE, T * place, R operand, int flag) {                                                               \
        (void)location, (void)thread;                                                                                  \
        HOW(T, I, place, OP, operand);                                                                                 \
        return flag ? after : before;                                                                                  \
    }
/* Two floats in one register would be another type than the callers', so the result is stored to a place. */
#define CAPTURE_TO(name, HOW, T, I, R, OP)                                                                             \
    void NAME(name)(HERE, T * place, R operand, T * out, int flag) {                                                   \
        (void)location, (void)thread;                                                                                  \
        HOW(T, I, place, OP, operand);                                                                                 \
        *out = flag ? after : before;                                                                                  \
    }
#define BOTH(name, HOW, T, I, OP) UPDATE(name, HOW, T, I, T, OP) CAPTURE(name##_cpt, HOW, T, I, T, OP)
#define REVERSED(name, HOW, T, I, OP)                                                                                  \
    UPDATE(name##_rev, HOW, T, I, T, OP) CAPTURE(name##_cpt_rev, HOW, T, I, T, OP)
#define READ(name, HOW, T, I)                                                                                          \
    T NAME(name##_rd)(HERE, T * place) {                                                                               \
        (void)location, (void)thread;                                                                                  \
        HOW##_READ(T, I, place);                                                                                       \
        return value;                                                                                                  \
    }
#define EXCHANGED_READ(T, I, place)                                                                                    \
    T value;                                                                                                           \
    I there = __atomic_load_n((I *)(place), __ATOMIC_SEQ_CST);                                                         \
    memcpy(&value, &there, sizeof(T))
#define LOCKED_READ(T, I, place)                                                                                       \
    atoll_atomic_begin();                                                                                              \
    T value = *(place);                                                                                                \
    atoll_atomic_end()
#define SWAP(name, HOW, T, I)                                                                                          \
    T NAME(name##_swp)(HERE, T * place, T operand) {                                                                   \
        (void)location, (void)thread;                                                                                  \
        HOW(T, I, place, PUT, operand);                                                                                \
        (void)after;                                                                                                   \
        return before;                                                                                                 \
    }
#define SWAP_TO(name, HOW, T, I)                                                                                       \
    void NAME(name##_swp)(HERE, T * place, T operand, T * out) {                                                       \
        (void)location, (void)thread;                                                                                  \
        HOW(T, I, place, PUT, operand);                                                                                \
        (void)after;                                                                                                   \
        *out = before;                                                                                                 \
    }

/* All functions for a type of signed integers, and those that differ for unsigned ones. */
#define INTEGER(name, T, U)                                                                                            \
    BOTH(name##_add, EXCHANGED, T, U, ADD)                                                                             \
    BOTH(name##_sub, EXCHANGED, T, U, SUB)                                                                             \
    BOTH(name##_mul, EXCHANGED, T, U, MUL)                                                                             \
    BOTH(name##_div, EXCHANGED, T, U, DIV)                                                                             \
    BOTH(name##_andb, EXCHANGED, T, U, ANDB)                                                                           \
    BOTH(name##_orb, EXCHANGED, T, U, ORB)                                                                             \
    BOTH(name##_xor, EXCHANGED, T, U, XOR)                                                                             \
    BOTH(name##_neqv, EXCHANGED, T, U, XOR)                                                                            \
    BOTH(name##_eqv, EXCHANGED, T, U, EQV)                                                                             \
    BOTH(name##_shl, EXCHANGED, T, U, SHL)                                                                             \
    BOTH(name##_shr, EXCHANGED, T, U, SHR)                                                                             \
    BOTH(name##_andl, EXCHANGED, T, U, ANDL)                                                                           \
    BOTH(name##_orl, EXCHANGED, T, U, ORL)                                                                             \
    BOTH(name##_min, EXCHANGED, T, U, MIN)                                                                             \
    BOTH(name##_max, EXCHANGED, T, U, MAX)                                                                             \
    REVERSED(name##_sub, EXCHANGED, T, U, SUB_REV)                                                                     \
    REVERSED(name##_div, EXCHANGED, T, U, DIV_REV)                                                                     \
    REVERSED(name##_shl, EXCHANGED, T, U, SHL_REV)                                                                     \
    REVERSED(name##_shr, EXCHANGED, T, U, SHR_REV)                                                                     \
    UPDATE(name##_mul_float8, EXCHANGED, T, U, double, MUL)                                                            \
    UPDATE(name##_div_float8, EXCHANGED, T, U, double, DIV)                                                            \
    UPDATE(name##_wr, EXCHANGED, T, U, T, PUT)                                                                         \
    READ(name, EXCHANGED, T, U)                                                                                        \
    SWAP(name, EXCHANGED, T, U)                                                                                        \
    BOTH(name##u_div, EXCHANGED, U, U, DIV)                                                                            \
    BOTH(name##u_shr, EXCHANGED, U, U, SHR)                                                                            \
    REVERSED(name##u_div, EXCHANGED, U, U, DIV_REV)                                                                    \
    REVERSED(name##u_shr, EXCHANGED, U, U, SHR_REV)

INTEGER(fixed1, int8_t, uint8_t)
INTEGER(fixed2, int16_t, uint16_t)
INTEGER(fixed4, int32_t, uint32_t)
INTEGER(fixed8, int64_t, uint64_t)

#define ARITHMETIC(name, HOW, T, I)                                                                                    \
    BOTH(name##_add, HOW, T, I, ADD)                                                                                   \
    BOTH(name##_sub, HOW, T, I, SUB)                                                                                   \
    BOTH(name##_mul, HOW, T, I, MUL)                                                                                   \
    BOTH(name##_div, HOW, T, I, DIV)                                                                                   \
    REVERSED(name##_sub, HOW, T, I, SUB_REV)                                                                           \
    REVERSED(name##_div, HOW, T, I, DIV_REV)                                                                           \
    UPDATE(name##_wr, HOW, T, I, T, PUT)                                                                               \
    READ(name, HOW, T, I)                                                                                              \
    SWAP(name, HOW, T, I)

#define REAL(name, HOW, T, I)                                                                                          \
    ARITHMETIC(name, HOW, T, I)                                                                                        \
    BOTH(name##_min, HOW, T, I, MIN)                                                                                   \
    BOTH(name##_max, HOW, T, I, MAX)

REAL(float4, EXCHANGED, float, uint32_t)
REAL(float8, EXCHANGED, double, uint64_t)
REAL(float10, LOCKED, long double, void)
ARITHMETIC(cmplx8, LOCKED, c8, void)
ARITHMETIC(cmplx10, LOCKED, c10, void)

UPDATE(float4_add_float8, EXCHANGED, float, uint32_t, double, ADD)
UPDATE(float4_sub_float8, EXCHANGED, float, uint32_t, double, SUB)
UPDATE(float4_mul_float8, EXCHANGED, float, uint32_t, double, MUL)
UPDATE(float4_div_float8, EXCHANGED, float, uint32_t, double, DIV)

#define SMALL(name, OP) UPDATE(name, EXCHANGED, c4, uint64_t, c4, OP)
SMALL(cmplx4_add, ADD)
SMALL(cmplx4_sub, SUB)
SMALL(cmplx4_mul, MUL)
SMALL(cmplx4_div, DIV)
SMALL(cmplx4_sub_rev, SUB_REV)
SMALL(cmplx4_div_rev, DIV_REV)
SMALL(cmplx4_wr, PUT)
#define SMALL_TO(name, OP) CAPTURE_TO(name, EXCHANGED, c4, uint64_t, c4, OP)
SMALL_TO(cmplx4_add_cpt, ADD)
SMALL_TO(cmplx4_sub_cpt, SUB)
SMALL_TO(cmplx4_mul_cpt, MUL)
SMALL_TO(cmplx4_div_cpt, DIV)
SMALL_TO(cmplx4_sub_cpt_rev, SUB_REV)
SMALL_TO(cmplx4_div_cpt_rev, DIV_REV)
READ(cmplx4, EXCHANGED, c4, uint64_t)
SWAP_TO(cmplx4, EXCHANGED, c4, uint64_t)
#define MIXED(name, OP) UPDATE(name, EXCHANGED, c4, uint64_t, c8, OP)
MIXED(cmplx4_add_cmplx8, ADD)
MIXED(cmplx4_sub_cmplx8, SUB)
MIXED(cmplx4_mul_cmplx8, MUL)
MIXED(cmplx4_div_cmplx8, DIV)

/* An operator of the program's: called with the address of the result, the old value and the operand. */
typedef void (*combine)(void *, void *, void *);
#define COMBINED(I, bytes)                                                                                             \
    void NAME(bytes)(HERE, I * place, void *operand, combine function) {                                               \
        (void)location, (void)thread;                                                                                  \
        I old = __atomic_load_n(place, __ATOMIC_RELAXED), new;                                                         \
        do {                                                                                                           \
            function(&new, &old, operand);                                                                             \
        } while (!__atomic_compare_exchange_n(place, &old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));           \
    }
#define COMBINED_LOCKED(bytes)                                                                                         \
    void NAME(bytes)(HERE, void *place, void *operand, combine function) {                                             \
        (void)location, (void)thread;                                                                                  \
        atoll_atomic_begin();                                                                                          \
        function(place, place, operand);                                                                               \
        atoll_atomic_end();                                                                                            \
    }
COMBINED(uint8_t, 1)
COMBINED(uint16_t, 2)
COMBINED(uint32_t, 4)
COMBINED(uint64_t, 8)
COMBINED_LOCKED(10)
COMBINED_LOCKED(16)
COMBINED_LOCKED(20)
COMBINED_LOCKED(32)

/* Compare and swap: `bool` returns whether it swapped, `val` the old value; `_cpt` also stores the value that is there
 * afterwards. */
#define COMPARE(T, bytes)                                                                                              \
    bool NAME(bool_##bytes##_cas)(HERE, T * place, T expected, T desired) {                                            \
        (void)location, (void)thread;                                                                                  \
        return __atomic_compare_exchange_n(place, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
    }                                                                                                                  \
    T NAME(val_##bytes##_cas)(HERE, T * place, T expected, T desired) {                                                \
        (void)location, (void)thread;                                                                                  \
        __atomic_compare_exchange_n(place, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);             \
        return expected;                                                                                               \
    }                                                                                                                  \
    bool NAME(bool_##bytes##_cas_cpt)(HERE, T * place, T expected, T desired, T * out) {                               \
        (void)location, (void)thread;                                                                                  \
        T old = expected;                                                                                              \
        if (__atomic_compare_exchange_n(place, &old, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))              \
            return true;                                                                                               \
        *out = old;                                                                                                    \
        return false;                                                                                                  \
    }                                                                                                                  \
    T NAME(val_##bytes##_cas_cpt)(HERE, T * place, T expected, T desired, T * out) {                                   \
        (void)location, (void)thread;                                                                                  \
        T old = expected;                                                                                              \
        bool done = __atomic_compare_exchange_n(place, &old, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
        *out = done ? desired : old;                                                                                   \
        return old;                                                                                                    \
    }
COMPARE(int8_t, 1)
COMPARE(int16_t, 2)
COMPARE(int32_t, 4)
COMPARE(int64_t, 8)
