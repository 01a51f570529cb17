/* CG, the conjugate-gradient kernel of the NAS Parallel Benchmarks, written to NAS-95-020 (section 2.4) with NPB
 * 3's class sizes and reference values of zeta. Memory layout: every array is static (.bss) and sized for class
 * C; a smaller class uses, and touches, only the front of each. The matrix (`value`, `column`) is nearly all of
 * it: each product reads it once from front to back, and gathers from the vector `p`.
 *
 * The smallest eigenvalue of a random sparse matrix is estimated by inverse power iteration, each step solving
 * A z = x by 25 steps of CG. --iterations N does N power iterations. --triples makes the same matrix as NPB 3 does: one
 * thread lists every product as row, column and value, and sorts that list; the list is more than half of the memory touched,
 * and no iteration touches it. --steps N solves by N steps of CG instead of 25, for traces: the steps touch memory alike.
 */
#include "npb_random.h"
#include "program.h"

#include <math.h>

#define MAX_N 150000
#define MAX_NONZER 15
#define MAX_TERMS (MAX_N * (MAX_NONZER + 1))
#define MAX_NONZEROS (MAX_TERMS * (MAX_NONZER + 1))
#define MAX_ROW_TERMS 4096 /* a row gathers about (NONZER + 1)^2 = 256 terms in class C */
#define RCOND 0.1
#define SEED 314159265ULL
#define CG_STEPS 25 /* unless --steps says otherwise */
#define EPSILON 1e-10

/* Sums run over blocks of rows, and the blocks' sums are added in block order: equal bits for any thread count. */
#define BLOCK 256
#define MAX_BLOCKS ((MAX_N + BLOCK - 1) / BLOCK)

typedef struct {
    char name;
    int n, nonzer, iterations;
    double shift, zeta;
} cg_class;

static const cg_class classes[] = {
    {'S', 1400, 7, 15, 10.0, 8.5971775078648},     {'W', 7000, 8, 15, 12.0, 10.362595087124},
    {'A', 14000, 11, 15, 20.0, 17.130235054029},   {'B', 75000, 13, 75, 60.0, 22.712745482631},
    {'C', 150000, 15, 75, 110.0, 28.973605592845},
};

/* The matrix, in compressed rows: row r is [row_start[r], row_start[r + 1]). */
static int row_start[MAX_N + 1];
static int column[MAX_NONZEROS];
static double value[MAX_NONZEROS];

static double x[MAX_N], z[MAX_N], p[MAX_N], q[MAX_N], r[MAX_N];
static int cg_steps = CG_STEPS;
static double partial_pq[MAX_BLOCKS], partial_rr[MAX_BLOCKS];

/* The vectors that the matrix is made from: A = sum over i of weight_i v_i v_i^T, v_i sparse, stored NONZER + 1 apart. */
static int vector_length[MAX_N], vector_index[MAX_TERMS];
static double vector_element[MAX_TERMS], weight[MAX_N];
/* For each row, the vectors with an element there, in order of i: (i, its element in the row). */
static int user_start[MAX_N + 1], user_vector[MAX_TERMS];
static double user_element[MAX_TERMS];

/* Draws the sparse vectors. Serial: how many numbers a vector takes from the stream depends on what it draws. */
static void draw_vectors(const cg_class *c) {
    int n = c->n, stride = c->nonzer + 1, power = 1;
    while (power < n) power *= 2;
    uint64_t seed = SEED;
    npb_random(&seed);
    double ratio = pow(RCOND, 1.0 / n), w = 1.0;
    for (int i = 0; i < n; i++) {
        int *index = &vector_index[(size_t)i * stride], length = 0, diagonal = -1;
        double *element = &vector_element[(size_t)i * stride];
        while (length < c->nonzer) {
            double e = npb_random(&seed);
            int at = (int)(power * npb_random(&seed)), seen = at >= n;
            for (int k = 0; k < length && !seen; k++) seen = index[k] == at;
            if (seen) continue;
            if (at == i) diagonal = length;
            index[length] = at;
            element[length++] = e;
        }
        if (diagonal < 0) index[diagonal = length++] = i;
        element[diagonal] = 0.5;
        vector_length[i] = length;
        weight[i] = w;
        w *= ratio;
    }
}

static void list_users(const cg_class *c) {
    int n = c->n, stride = c->nonzer + 1;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < vector_length[i]; k++) user_start[vector_index[(size_t)i * stride + k] + 1]++;
    for (int i = 0; i < n; i++) user_start[i + 1] += user_start[i];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < vector_length[i]; k++) {
            /* user_start[row] runs up to the row's end here, and is moved back below. */
            int at = user_start[vector_index[(size_t)i * stride + k]]++;
            user_vector[at] = i;
            user_element[at] = vector_element[(size_t)i * stride + k];
        }
    for (int i = n; i > 0; i--) user_start[i] = user_start[i - 1];
    user_start[0] = 0;
}

/* Shell sort: rows have some hundred keys, where it beats qsort's calls. */
static void sort_keys(uint64_t *key, int n) {
    static const int gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
        for (int i = gaps[g]; i < n; i++) {
            uint64_t k = key[i];
            int j = i;
            for (; j >= gaps[g] && key[j - gaps[g]] > k; j -= gaps[g]) key[j] = key[j - gaps[g]];
            key[j] = k;
        }
}

/* Assembles one row; returns its number of nonzeros, written to `columns` and `values` unless these are NULL.
 * A key is (column, place in order of i), so terms of one column come together and are added in order of i. */
static int assemble_row(const cg_class *c, int row, int *columns, double *values) {
    uint64_t key[MAX_ROW_TERMS];
    double term[MAX_ROW_TERMS];
    int terms = 0, stride = c->nonzer + 1;
    for (int u = user_start[row]; u < user_start[row + 1]; u++) {
        int i = user_vector[u];
        double scale = weight[i] * user_element[u];
        if (terms + vector_length[i] > MAX_ROW_TERMS) {
            fprintf(stderr, "cg: row %d has too many terms\n", row);
            exit(1);
        }
        for (int k = 0; k < vector_length[i]; k++) {
            int col = vector_index[(size_t)i * stride + k];
            key[terms] = (uint64_t)col << 32 | (uint64_t)terms;
            term[terms] = vector_element[(size_t)i * stride + k] * scale;
            if (col == row && i == row) term[terms] += RCOND - c->shift;
            terms++;
        }
    }
    sort_keys(key, terms);
    int nonzeros = 0;
    for (int t = 0, last = -1; t < terms; t++) {
        int col = (int)(key[t] >> 32);
        if (col != last) {
            if (columns) {
                columns[nonzeros] = col;
                values[nonzeros] = 0.0;
            }
            nonzeros++;
            last = col;
        }
        if (columns) values[nonzeros - 1] += term[(uint32_t)key[t]];
    }
    return nonzeros;
}

/* Twice over the rows, to count and to fill: the matrix is then written once, tightly, in parallel. */
static void make_matrix(const cg_class *c) {
    draw_vectors(c);
    list_users(c);
#pragma omp parallel for schedule(static)
    for (int row = 0; row < c->n; row++) row_start[row + 1] = assemble_row(c, row, NULL, NULL);
    for (int row = 0; row < c->n; row++) row_start[row + 1] += row_start[row];
#pragma omp parallel for schedule(static)
    for (int row = 0; row < c->n; row++) assemble_row(c, row, &column[row_start[row]], &value[row_start[row]]);
}

/* One row's entries, `n` of them with columns that may come again, are sorted and added up; returns how many are left, written
 * to `columns` and `values`, which may overlap them from below. */
static int combine_row(int n, const int *from_columns, const double *from_values, int *columns, double *values) {
    uint64_t key[MAX_ROW_TERMS];
    double term[MAX_ROW_TERMS];
    if (n > MAX_ROW_TERMS) {
        fprintf(stderr, "cg: a row has too many terms\n");
        exit(1);
    }
    for (int t = 0; t < n; t++) {
        key[t] = (uint64_t)from_columns[t] << 32 | (uint64_t)t;
        term[t] = from_values[t];
    }
    sort_keys(key, n);
    int nonzeros = 0;
    for (int t = 0, last = -1; t < n; t++) {
        int col = (int)(key[t] >> 32);
        if (col != last) {
            columns[nonzeros] = last = col;
            values[nonzeros++] = 0.0;
        }
        values[nonzeros - 1] += term[(uint32_t)key[t]];
    }
    return nonzeros;
}

/* Makes the same matrix as NPB 3 does (`makea` and `sparse`), serially from beginning to end. */
static void make_matrix_from_triples(const cg_class *c) {
    int n = c->n, stride = c->nonzer + 1;
    draw_vectors(c);
    size_t most = (size_t)n * stride * stride, triples = 0;
    int *triple_row = malloc(most * sizeof *triple_row), *triple_column = malloc(most * sizeof *triple_column);
    double *triple_value = malloc(most * sizeof *triple_value);
    if (!triple_row || !triple_column || !triple_value) {
        fprintf(stderr, "cg: no memory for %zu triples\n", most);
        exit(1);
    }
    for (int i = 0; i < n; i++) {
        const int *index = &vector_index[(size_t)i * stride];
        const double *element = &vector_element[(size_t)i * stride];
        for (int r = 0; r < vector_length[i]; r++) {
            double scale = weight[i] * element[r];
            for (int k = 0; k < vector_length[i]; k++, triples++) {
                triple_row[triples] = index[r];
                triple_column[triples] = index[k];
                triple_value[triples] = element[k] * scale;
                if (index[r] == i && index[k] == i) triple_value[triples] += RCOND - c->shift;
            }
        }
    }
    for (size_t t = 0; t < triples; t++) row_start[triple_row[t] + 1]++;
    for (int row = 0; row < n; row++) row_start[row + 1] += row_start[row];
    for (size_t t = 0; t < triples; t++) {
        /* row_start[row] runs up to the row's end, which is the next row's beginning. */
        int at = row_start[triple_row[t]]++;
        column[at] = triple_column[t];
        value[at] = triple_value[t];
    }
    for (int row = 0, from = 0, to = 0; row < n; row++) {
        int end = row_start[row];
        int nonzeros = combine_row(end - from, &column[from], &value[from], &column[to], &value[to]);
        row_start[row] = to;
        from = end;
        to += nonzeros;
        if (row == n - 1) row_start[n] = to;
    }
    /* These arrays stay to the program's end, as NPB's do. */
}

static inline double row_product(int row, const double *v) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int k = row_start[row]; k < row_start[row + 1]; k++) sum += value[k] * v[column[k]];
    return sum;
}

static double sum_blocks(const double *partial, int blocks) {
    double sum = 0.0;
    for (int b = 0; b < blocks; b++) sum += partial[b];
    return sum;
}

/* The rows of block `b`. */
static inline int block_end(int b, int n) {
    return (b + 1) * BLOCK < n ? (b + 1) * BLOCK : n;
}
#define FOR_ROWS(b, n, row) for (int row = (b) * BLOCK, end_ = block_end(b, n); row < end_; row++)

/* Solves A z = x approximately; returns |x - A z|. Every thread adds up the blocks' sums for itself, after the
 * barrier that ends the loop that made them; two arrays of sums keep a fast thread off what a slow one reads. */
static double conjugate_gradient(int n) {
    int blocks = (n + BLOCK - 1) / BLOCK;
    double residual = 0.0;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int b = 0; b < blocks; b++) {
            double sum = 0.0;
            FOR_ROWS(b, n, i) {
                z[i] = 0.0;
                r[i] = p[i] = x[i];
                sum += x[i] * x[i];
            }
            partial_rr[b] = sum;
        }
        double rho = sum_blocks(partial_rr, blocks);
        for (int step = 0; step < cg_steps; step++) {
#pragma omp for schedule(static)
            for (int b = 0; b < blocks; b++) {
                double sum = 0.0;
                FOR_ROWS(b, n, i) {
                    q[i] = row_product(i, p);
                    sum += p[i] * q[i];
                }
                partial_pq[b] = sum;
            }
            double alpha = rho / sum_blocks(partial_pq, blocks);
#pragma omp for schedule(static)
            for (int b = 0; b < blocks; b++) {
                double sum = 0.0;
                FOR_ROWS(b, n, i) {
                    z[i] += alpha * p[i];
                    r[i] -= alpha * q[i];
                    sum += r[i] * r[i];
                }
                partial_rr[b] = sum;
            }
            double rho_before = rho;
            rho = sum_blocks(partial_rr, blocks);
            double beta = rho / rho_before;
#pragma omp for schedule(static)
            for (int b = 0; b < blocks; b++) FOR_ROWS(b, n, i) p[i] = r[i] + beta * p[i];
        }
#pragma omp for schedule(static)
        for (int b = 0; b < blocks; b++) {
            double sum = 0.0;
            FOR_ROWS(b, n, i) {
                double d = x[i] - row_product(i, z);
                sum += d * d;
            }
            partial_pq[b] = sum;
        }
#pragma omp single
        residual = sqrt(sum_blocks(partial_pq, blocks));
    }
    return residual;
}

/* One step of the power iteration: solves, replaces x by z / |z| and returns zeta. */
static double power_step(const cg_class *c, double *residual) {
    int n = c->n, blocks = (n + BLOCK - 1) / BLOCK;
    *residual = conjugate_gradient(n);
#pragma omp parallel for schedule(static)
    for (int b = 0; b < blocks; b++) {
        double xz = 0.0, zz = 0.0;
        FOR_ROWS(b, n, i) {
            xz += x[i] * z[i];
            zz += z[i] * z[i];
        }
        partial_pq[b] = xz;
        partial_rr[b] = zz;
    }
    double scale = 1.0 / sqrt(sum_blocks(partial_rr, blocks));
#pragma omp parallel for schedule(static)
    for (int b = 0; b < blocks; b++) FOR_ROWS(b, n, i) x[i] = scale * z[i];
    return c->shift + 1.0 / sum_blocks(partial_pq, blocks);
}

int main(int argc, char **argv) {
    int triples = program_has(&argc, argv, "--triples");
    cg_steps = program_number(&argc, argv, "--steps", 1, CG_STEPS, CG_STEPS);
    program_options o = program_parse(argc, argv);
    const cg_class *c = classes;
    while (c->name != o.class_) c++;
    int iterations = o.iterations ? o.iterations : c->iterations;

    double start = program_seconds();
    if (triples)
        make_matrix_from_triples(c);
    else
        make_matrix(c);
    for (int i = 0; i < c->n; i++) x[i] = 1.0;
    printf("CG class %c: %d rows, %d nonzeros, made in %.3f s\n", c->name, c->n, row_start[c->n],
           program_seconds() - start);

    start = program_seconds();
    double zeta = 0.0;
    for (int it = 1; it <= iterations; it++) {
        double residual;
        zeta = power_step(c, &residual);
        printf("%3d  |r| %.14e  zeta %.13f\n", it, residual, zeta);
    }
    double seconds = program_seconds() - start;

    uint64_t sum = program_checksum(PROGRAM_CHECKSUM_SEED, &zeta, sizeof zeta);
    sum = program_checksum(sum, x, (size_t)c->n * sizeof *x);
    /* Where the steps of CG are fewer, it is they that are counted. */
    int each = cg_steps == CG_STEPS ? 1 : CG_STEPS, done = iterations * (each == 1 ? 1 : cg_steps);
    return program_verdict(sum, seconds, done == c->iterations * each, fabs(zeta - c->zeta) / c->zeta <= EPSILON, zeta,
                           c->zeta, done, c->iterations * each);
}
