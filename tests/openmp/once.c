/* Objects made when first needed, by whoever comes first: double-checked under a lock, and by compare and swap of which all
 * but one throw theirs away. What is behind a pointer must be there for whoever sees the pointer. ARGV[1] is the number of
 * objects. */
#include "check.h"
#include "spin.h"
#include <string.h>

enum { WORDS = 40 };

struct object {
    long key;
    long word[WORDS];
};

static long objects;
static struct object **slot;
static long made, thrown_away;

static struct object *make(long key) {
    struct object *o = malloc(sizeof *o);
    o->key = key;
    for (int w = 0; w < WORDS; w++)
        o->word[w] = (long)mixed((unsigned long)(key * WORDS + w));
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    return o;
}

static int is_whole(const struct object *o, long key) {
    int whole = o->key == key;
    for (int w = 0; w < WORDS; w++)
        whole &= o->word[w] == (long)mixed((unsigned long)(key * WORDS + w));
    return whole;
}

static struct object *checked_twice(long key) {
    static int lock;
    struct object *o = __atomic_load_n(&slot[key], __ATOMIC_ACQUIRE);
    if (o)
        return o;
    struct waiting w = {0};
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
        spin(&w);
    o = slot[key];
    if (!o) {
        o = make(key);
        __atomic_store_n(&slot[key], o, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    return o;
}

static struct object *checked_twice_in_a_critical_section(long key) {
    struct object *o;
#pragma omp atomic read acquire
    o = slot[key];
    if (o)
        return o;
#pragma omp critical(make)
    {
        o = slot[key];
        if (!o) {
            o = make(key);
#pragma omp atomic write release
            slot[key] = o;
        }
    }
    return o;
}

static struct object *published(long key) {
    struct object *o = __atomic_load_n(&slot[key], __ATOMIC_ACQUIRE);
    if (o)
        return o;
    struct object *mine = make(key), *none = NULL;
    if (__atomic_compare_exchange_n(&slot[key], &none, mine, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return mine;
    free(mine);
    __atomic_fetch_add(&thrown_away, 1, __ATOMIC_RELAXED);
    return none;
}

static void all_by(struct object *(*get)(long)) {
    long torn = 0, different = 0;
    struct object **seen = calloc((size_t)objects, sizeof *seen);
    memset(slot, 0, (size_t)objects * sizeof *slot);
    made = thrown_away = 0;
#pragma omp parallel reduction(+ : torn)
    for (long i = 0; i < objects; i++) {
        /* All come to the same objects at about the same time. */
        struct object *o = get(i);
        torn += !is_whole(o, i);
        __atomic_store_n(&seen[i], o, __ATOMIC_RELAXED);
    }
    for (long i = 0; i < objects; i++) {
        different += seen[i] != slot[i] || !is_whole(slot[i], i);
        free(slot[i]);
    }
    CHECK(torn == 0 && different == 0);
    CHECK(made - thrown_away == objects);
    free(seen);
}

int main(int argc, char **argv) {
    objects = size_of(argc, argv, 1500);
    slot = malloc((size_t)objects * sizeof *slot);
    all_by(checked_twice);
    CHECK(made == objects);
    all_by(checked_twice_in_a_critical_section);
    CHECK(made == objects);
    all_by(published);
    free(slot);
    return result();
}
