/* Functions that synchronise with nobody: all must be found plain at every level. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    struct node *next;
    double value;
};

double global_sum[64];
int global_count, limit;

double plain_sum(const double *a, long n) {
    double s = 0;
    for (long i = 0; i < n; i++) s += a[i];
    return s;
}

/* The bounds are globals, read again in each round. */
void plain_global_bounds(double *a) {
    for (int i = 0; i < limit; i++)
        for (int j = 0; j < global_count; j++) a[i * 64 + j] += global_sum[j];
}

double plain_list(const struct node *n) {
    double s = 0;
    while (n) {
        s += n->value;
        n = n->next;
    }
    return s;
}

long plain_search(const int *sorted, long n, int wanted) {
    long low = 0, high = n;
    while (low < high) {
        long middle = (low + high) / 2;
        if (sorted[middle] < wanted) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* A word of memory that the loop itself counts down. */
void plain_counts_memory(int *left, double *a) {
    while (*left > 0) {
        a[*left] *= 2;
        (*left)--;
    }
}

int plain_switch(int kind, int *a) {
    switch (kind) {
    case 0: return a[3];
    case 1: return a[1] * 2;
    case 2: return a[9];
    case 3: return 7 * a[2];
    case 4: return a[7];
    case 5: return a[0] - 3;
    case 6: a[2] = 0; return 12;
    default: return 0;
    }
}

int plain_switch_in_loop(unsigned kind, int *a, int n) {
    for (int i = 0; i < n; i++) switch (kind + i) {
        case 10: a[3]++; break;
        case 11: a[1] *= 2; break;
        case 12: a[9]--; break;
        case 13: a[2] *= 7; break;
        case 14: a[7] = 0; break;
        case 15: a[0] = 2; break;
        default: a[1] = 0;
        }
    return a[2];
}

int plain_switch_by_mask(unsigned kind, int *a) {
    switch (kind & 7) {
    case 0: return a[3];
    case 1: return a[1] * 2;
    case 2: return a[9];
    case 3: return 7 * a[2];
    case 4: return a[7];
    case 5: return a[0];
    case 6: return a[11] * 3;
    case 7: return a[7] * 13;
    }
    return 1;
}

long plain_recursion(int n) { return n < 2 ? n : plain_recursion(n - 1) + plain_recursion(n - 2); }

__attribute__((noinline)) static double half(double x) { return x / 2; }
double plain_tail_call(double x) { return half(x + 1); }

void plain_copies(char *to, const char *from, size_t n) {
    memcpy(to, from, n);
    memset(to + n, 0, n);
    memmove(to + 1, to, n);
}

void plain_prints(double x) {
    printf("%g\n", x);
    fprintf(stderr, "%g %zu\n", x, strlen("x"));
}

double plain_mathematics(double x) { return sin(x) + pow(x, 1.5) + exp(-x) + sqrt(x) + fmod(x, 2); }

void *plain_allocates(size_t n) {
    char *p = malloc(n);
    if (!p) abort();
    free(p);
    return calloc(n, 2);
}

__attribute__((noinline, noreturn)) static void die(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}
double plain_checks(const double *a, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) {
        if (a[i] < 0) die("negative");
        if (limit == 3) die("three");
        s += a[i];
    }
    return s;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
void plain_sorts(double *a, size_t n) { qsort(a, n, sizeof *a, by_value); }


static int chars_left(FILE *f) {
    int n = 0, c;
    while ((c = getc(f)) != EOF) n += c == '\n';
    return n;
}
int plain_reads(FILE *f) { return chars_left(f); }

int main(void) { return 0; }
