/* The part that bt, sp and lu share: the flow problem of the NAS Parallel Benchmarks (NAS-95-020, section 3, "the pseudo
 * applications"). All three integrate one system, the compressible Navier-Stokes equations with a source term, and
 * differ in the implicit scheme alone; so the exact solution, the initial field, the spatial operator, its Jacobians
 * and the norms live here.
 *
 * Layout: the grid is a cube of n points a side, and a field holds its cells with x fastest, each row and plane padded
 * to p = n|1 cells: with n = 64 a walk along z would otherwise meet the same few cache sets at every step. A cell of a
 * vector field is 5 doubles side by side: density, three momenta, energy. Directions are 0, 1, 2 for x, y, z, and
 * momentum component 1 + d belongs to direction d, so that one text serves all three directions; the callers pass d as
 * a literal and the compiler specialises.
 */
#ifndef ATOLL_NPB_CFD_H
#define ATOLL_NPB_CFD_H

#include <math.h>
#include <omp.h>
#include <stddef.h>

#include "program.h"

#define CFD_INLINE static inline __attribute__((always_inline))

/* The specification's k1..k5: ratio of specific heats, that minus one, and the viscous coefficients. */
static const double C1 = 1.4, C2 = 0.4, C3C4 = 0.1, C1C5 = 1.96, C1345 = 0.196;
static const double CON43 = 4.0 / 3.0, CON16 = 1.0 / 6.0;
/* Second-order dissipation in each direction, the same for all five components, and the fourth-order one, which is a
 * quarter of the largest of them. */
static const double CFD_DIFFUSION[3] = {0.75, 0.75, 1.0};
static const double CFD_DSSP = 0.25;

/* u_m = CE[m][0] + sum over the three coordinates and the powers 1..4, coordinates varying faster than powers. */
static const double CFD_CE[5][13] = {
    {2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3},
    {1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5},
    {2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4},
    {2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3},
    {5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2},
};

/* One class of one benchmark, with the published norms it must reproduce. */
typedef struct {
    char class_;
    int n, steps;
    double dt;
    double residual[5], error[5];
    double surface; /* lu only */
} cfd_class;

/* The grid and the numbers that follow from it. */
typedef struct {
    int n;
    size_t p;         /* cells in a padded row */
    size_t cells;     /* cells in a field, padding included */
    size_t stride[3]; /* cells from one point to the next in each direction */
    double dt, h;     /* time step, spacing */
    double t1, t2;    /* 1/h^2 and 1/(2h), the factors of second and first differences */
    double (*partial)[5];
} cfd_grid;

/* The fields that the spatial operator of bt and sp reads and writes. */
typedef struct {
    double *u, *rhs, *forcing;
    double *velocity[3], *rho_i, *qs, *square;
    double *speed; /* sp only, otherwise null */
} cfd_state;

CFD_INLINE size_t cfd_at(const cfd_grid *g, int i, int j, int k) {
    return ((size_t)k * g->p + (size_t)j) * g->p + (size_t)i;
}

static inline void *cfd_allocate(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!p) {
        fprintf(stderr, "out of memory (%zu bytes)\n", bytes);
        exit(3);
    }
    return p;
}

/* A zeroed field of `width` doubles a cell, zeroed by the threads that will work on it so that its pages are theirs. */
static inline double *cfd_field(const cfd_grid *g, int width) {
    size_t plane = g->p * g->p * (size_t)width;
    double *f = cfd_allocate(plane * (size_t)g->n * sizeof *f);
#pragma omp parallel for schedule(static)
    for (int k = 0; k < g->n; k++) memset(f + (size_t)k * plane, 0, plane * sizeof *f);
    return f;
}

static inline const cfd_class *cfd_find_class(const cfd_class *table, char class_) {
    while (table->class_ != class_) table++;
    return table;
}

static inline cfd_grid cfd_make_grid(const cfd_class *c) {
    cfd_grid g = {.n = c->n, .p = (size_t)c->n | 1, .dt = c->dt, .h = 1.0 / (c->n - 1)};
    g.cells = g.p * g.p * (size_t)g.n;
    g.stride[0] = 1;
    g.stride[1] = g.p;
    g.stride[2] = g.p * g.p;
    g.t1 = 1.0 / (g.h * g.h);
    g.t2 = 1.0 / (2.0 * g.h);
    g.partial = cfd_allocate((size_t)g.n * sizeof *g.partial);
    return g;
}

/* One private block of `doubles` for each thread there may be, touched first by its owner. */
static inline double **cfd_workspaces(size_t doubles) {
    double **w = cfd_allocate((size_t)omp_get_max_threads() * sizeof *w);
#pragma omp parallel
    {
        double *mine = cfd_allocate(doubles * sizeof *mine);
        memset(mine, 0, doubles * sizeof *mine);
        w[omp_get_thread_num()] = mine;
    }
    return w;
}

static inline void cfd_exact(double x, double y, double z, double out[5]) {
    for (int m = 0; m < 5; m++) {
        const double *c = CFD_CE[m];
        out[m] = c[0] + x * (c[1] + x * (c[4] + x * (c[7] + x * c[10]))) +
                 y * (c[2] + y * (c[5] + y * (c[8] + y * c[11]))) +
                 z * (c[3] + z * (c[6] + z * (c[9] + z * c[12])));
    }
}

/* Sets u to the exact solution at every point: the field that the source term must hold still. */
static inline void cfd_set_exact(const cfd_grid *g, double *u) {
#pragma omp parallel for schedule(static)
    for (int k = 0; k < g->n; k++)
        for (int j = 0; j < g->n; j++)
            for (int i = 0; i < g->n; i++) cfd_exact(i * g->h, j * g->h, k * g->h, u + 5 * cfd_at(g, i, j, k));
}

/* Sets u to the starting field: exact on the surface of the cube, inside it the transfinite interpolation of the six
 * faces (the boolean sum of the three linear interpolations). */
static inline void cfd_set_initial(const cfd_grid *g, double *u) {
    const int last = g->n - 1;
#pragma omp parallel for schedule(static)
    for (int k = 0; k <= last; k++)
        for (int j = 0; j <= last; j++)
            for (int i = 0; i <= last; i++) {
                double x = i * g->h, y = j * g->h, z = k * g->h, face[3][2][5];
                double *c = u + 5 * cfd_at(g, i, j, k);
                if (i == 0 || j == 0 || k == 0 || i == last || j == last || k == last) {
                    cfd_exact(x, y, z, c);
                    continue;
                }
                for (int side = 0; side < 2; side++) {
                    cfd_exact(side, y, z, face[0][side]);
                    cfd_exact(x, side, z, face[1][side]);
                    cfd_exact(x, y, side, face[2][side]);
                }
                for (int m = 0; m < 5; m++) {
                    double a = x * face[0][1][m] + (1.0 - x) * face[0][0][m];
                    double b = y * face[1][1][m] + (1.0 - y) * face[1][0][m];
                    double d = z * face[2][1][m] + (1.0 - z) * face[2][0][m];
                    c[m] = a + b + d - a * b - a * d - b * d + a * b * d;
                }
            }
}

/* Fourth-order dissipation of component `c` (a pointer to it, neighbours `s` doubles apart) at point m of a line of n:
 * one-sided at the two points nearest each end. */
CFD_INLINE double cfd_fourth(const double *c, ptrdiff_t s, int m, int n) {
    if (m == 1) return 5.0 * c[0] - 4.0 * c[s] + c[2 * s];
    if (m == n - 2) return c[-2 * s] - 4.0 * c[-s] + 5.0 * c[0];
    if (m == 2) return -4.0 * c[-s] + 6.0 * c[0] - 4.0 * c[s] + c[2 * s];
    if (m == n - 3) return c[-2 * s] - 4.0 * c[-s] + 6.0 * c[0] - 4.0 * c[s];
    return c[-2 * s] - 4.0 * c[-s] + 6.0 * c[0] - 4.0 * c[s] + c[2 * s];
}

/* Adds direction d's share of the spatial operator to rhs. Called by a whole team; ends without a barrier. */
CFD_INLINE void cfd_rhs_direction(const cfd_grid *g, const cfd_state *st, const int d) {
    const int n = g->n, a = 1 + d, e = 1 + (d + 1) % 3, f = 1 + (d + 2) % 3;
    const ptrdiff_t s = (ptrdiff_t)g->stride[d];
    const double t2 = g->t2, diffusion = CFD_DIFFUSION[d] * g->t1, viscous = C3C4 * g->t1;
    const double visc3 = viscous * (1.0 - C1C5), visc4 = viscous * CON16, visc5 = viscous * C1C5;
    const double *va = st->velocity[a - 1], *ve = st->velocity[e - 1], *vf = st->velocity[f - 1];
    const double *rho_i = st->rho_i, *qs = st->qs, *square = st->square;
#pragma omp for schedule(static) nowait
    for (int k = 1; k < n - 1; k++)
        for (int j = 1; j < n - 1; j++)
            for (int i = 1; i < n - 1; i++) {
                const size_t c = cfd_at(g, i, j, k), up = c + (size_t)s, down = c - (size_t)s;
                const double *u = st->u + 5 * c, *u_up = st->u + 5 * up, *u_down = st->u + 5 * down;
                const double q = va[c], q_up = va[up], q_down = va[down];
                double r[5];
                for (int m = 0; m < 5; m++)
                    r[m] = st->rhs[5 * c + m] + diffusion * (u_up[m] - 2.0 * u[m] + u_down[m]);
                r[0] -= t2 * (u_up[a] - u_down[a]);
                r[a] += viscous * CON43 * (q_up - 2.0 * q + q_down) -
                        t2 * (u_up[a] * q_up - u_down[a] * q_down +
                              (u_up[4] - square[up] - u_down[4] + square[down]) * C2);
                r[e] += viscous * (ve[up] - 2.0 * ve[c] + ve[down]) - t2 * (u_up[e] * q_up - u_down[e] * q_down);
                r[f] += viscous * (vf[up] - 2.0 * vf[c] + vf[down]) - t2 * (u_up[f] * q_up - u_down[f] * q_down);
                r[4] += visc3 * (qs[up] - 2.0 * qs[c] + qs[down]) +
                        visc4 * (q_up * q_up - 2.0 * q * q + q_down * q_down) +
                        visc5 * (u_up[4] * rho_i[up] - 2.0 * u[4] * rho_i[c] + u_down[4] * rho_i[down]) -
                        t2 * ((C1 * u_up[4] - C2 * square[up]) * q_up -
                              (C1 * u_down[4] - C2 * square[down]) * q_down);
                const int point = d == 0 ? i : d == 1 ? j : k;
                for (int m = 0; m < 5; m++)
                    st->rhs[5 * c + m] = r[m] - CFD_DSSP * cfd_fourth(u + m, 5 * s, point, n);
            }
}

/* rhs = scale * (forcing + the spatial operator of u), inside; on the surface it is 0. */
static void cfd_compute_rhs(const cfd_grid *g, const cfd_state *st, double scale) {
    const int n = g->n;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) {
                size_t row = cfd_at(g, 0, j, k);
                for (size_t c = row; c < row + (size_t)n; c++) {
                    const double *u = st->u + 5 * c;
                    double inverse = 1.0 / u[0];
                    double square = 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) * inverse;
                    st->rho_i[c] = inverse;
                    for (int d = 0; d < 3; d++) st->velocity[d][c] = u[1 + d] * inverse;
                    st->square[c] = square;
                    st->qs[c] = square * inverse;
                    if (st->speed) st->speed[c] = sqrt(C1 * C2 * inverse * (u[4] - square));
                }
                memcpy(st->rhs + 5 * row, st->forcing + 5 * row, 5 * (size_t)n * sizeof(double));
            }
        /* The four loops below give each thread the same planes (static, equal bounds), so they need no barriers. */
        cfd_rhs_direction(g, st, 0);
        cfd_rhs_direction(g, st, 1);
        cfd_rhs_direction(g, st, 2);
#pragma omp for schedule(static) nowait
        for (int k = 1; k < n - 1; k++)
            for (int j = 1; j < n - 1; j++) {
                double *r = st->rhs + 5 * cfd_at(g, 1, j, k);
                for (int x = 0; x < 5 * (n - 2); x++) r[x] *= scale;
            }
    }
}

/* The source term: what makes the exact solution a steady state of the discrete operator. */
static inline void cfd_compute_forcing(const cfd_grid *g, const cfd_state *st) {
    cfd_set_exact(g, st->u);
    cfd_compute_rhs(g, st, -1.0);
#pragma omp parallel for schedule(static)
    for (int k = 0; k < g->n; k++) {
        size_t plane = 5 * cfd_at(g, 0, 0, k);
        memcpy(st->forcing + plane, st->rhs + plane, 5 * g->stride[2] * sizeof(double));
    }
}

static inline cfd_state cfd_make_state(const cfd_grid *g, int with_speed) {
    cfd_state st = {.u = cfd_field(g, 5), .rhs = cfd_field(g, 5), .forcing = cfd_field(g, 5)};
    for (int d = 0; d < 3; d++) st.velocity[d] = cfd_field(g, 1);
    st.rho_i = cfd_field(g, 1);
    st.qs = cfd_field(g, 1);
    st.square = cfd_field(g, 1);
    if (with_speed) st.speed = cfd_field(g, 1);
    return st;
}

/* u += factor * increment, inside. */
static inline void cfd_add(const cfd_grid *g, double *u, const double *increment, double factor) {
#pragma omp parallel for schedule(static)
    for (int k = 1; k < g->n - 1; k++)
        for (int j = 1; j < g->n - 1; j++) {
            size_t row = 5 * cfd_at(g, 1, j, k);
            for (size_t x = row; x < row + 5 * (size_t)(g->n - 2); x++) u[x] += factor * increment[x];
        }
}

/* The Jacobians of the convective (f) and of the viscous (v) flux in direction d, at a cell with state u. The viscous
 * one depends on the state only through 1/density and the velocities. */
CFD_INLINE void cfd_jacobians(const int d, const double *u, double f[5][5], double v[5][5]) {
    const int a = 1 + d, e = 1 + (d + 1) % 3, o = 1 + (d + 2) % 3;
    const double r = 1.0 / u[0], qa = u[a] * r, qe = u[e] * r, qo = u[o] * r, energy = u[4] * r;
    const double half = 0.5 * (qa * qa + qe * qe + qo * qo);
    const double along = (CON43 * C3C4 - C1345) * r, across = (C3C4 - C1345) * r;

    for (int m = 0; m < 5; m++) f[0][m] = 0.0;
    f[0][a] = 1.0;
    f[a][0] = C2 * half - qa * qa;
    f[a][a] = (2.0 - C2) * qa;
    f[a][e] = -C2 * qe;
    f[a][o] = -C2 * qo;
    f[a][4] = C2;
    f[e][0] = -qa * qe;
    f[e][a] = qe;
    f[e][e] = qa;
    f[e][o] = 0.0;
    f[e][4] = 0.0;
    f[o][0] = -qa * qo;
    f[o][a] = qo;
    f[o][e] = 0.0;
    f[o][o] = qa;
    f[o][4] = 0.0;
    f[4][0] = (2.0 * C2 * half - C1 * energy) * qa;
    f[4][a] = C1 * energy - C2 * (qa * qa + half);
    f[4][e] = -C2 * qa * qe;
    f[4][o] = -C2 * qa * qo;
    f[4][4] = C1 * qa;

    for (int m = 0; m < 4; m++)
        for (int l = 0; l < 5; l++) v[m][l] = 0.0;
    v[a][0] = -CON43 * C3C4 * r * qa;
    v[a][a] = CON43 * C3C4 * r;
    v[e][0] = -C3C4 * r * qe;
    v[e][e] = C3C4 * r;
    v[o][0] = -C3C4 * r * qo;
    v[o][o] = C3C4 * r;
    v[4][0] = -along * qa * qa - across * (qe * qe + qo * qo) - C1345 * r * energy;
    v[4][a] = along * qa;
    v[4][e] = across * qe;
    v[4][o] = across * qo;
    v[4][4] = C1345 * r;
}

/* Root mean square of each component over the inside, of the field itself or, with `exact`, of its distance from the
 * exact solution. Plane sums are added in the order of the planes, so the bits do not depend on the thread count. */
static inline void cfd_norm(const cfd_grid *g, const double *field, int exact, double out[5]) {
#pragma omp parallel for schedule(static)
    for (int k = 1; k < g->n - 1; k++) {
        double sum[5] = {0, 0, 0, 0, 0}, want[5] = {0, 0, 0, 0, 0};
        for (int j = 1; j < g->n - 1; j++)
            for (int i = 1; i < g->n - 1; i++) {
                const double *c = field + 5 * cfd_at(g, i, j, k);
                if (exact) cfd_exact(i * g->h, j * g->h, k * g->h, want);
                for (int m = 0; m < 5; m++) sum[m] += (c[m] - want[m]) * (c[m] - want[m]);
            }
        memcpy(g->partial[k], sum, sizeof sum);
    }
    const double side = g->n - 2;
    for (int m = 0; m < 5; m++) {
        double sum = 0.0;
        for (int k = 1; k < g->n - 1; k++) sum += g->partial[k][m];
        out[m] = sqrt(sum / (side * side * side));
    }
}

/* Checksum of all of u but its padding: one of each plane, then one over those in order. */
static inline uint64_t cfd_checksum(const cfd_grid *g, const double *u) {
    uint64_t *plane = cfd_allocate((size_t)g->n * sizeof *plane), h;
#pragma omp parallel for schedule(static)
    for (int k = 0; k < g->n; k++) {
        uint64_t sum = PROGRAM_CHECKSUM_SEED;
        for (int j = 0; j < g->n; j++)
            sum = program_checksum(sum, u + 5 * cfd_at(g, 0, j, k), 5 * (size_t)g->n * sizeof(double));
        plane[k] = sum;
    }
    h = program_checksum(PROGRAM_CHECKSUM_SEED, plane, (size_t)g->n * sizeof *plane);
    free(plane);
    return h;
}

/* What a run found, held against its class; `surface` is compared where the class has one. Returns the exit status. */
static inline int cfd_verdict(const cfd_grid *g, const cfd_class *c, const double *u, const double residual[5],
                              const double error[5], double surface, double seconds, int steps) {
    double got[11], want[11], bad_got = 0.0, bad_want = 0.0;
    int ok = 1, count = c->surface != 0.0 ? 11 : 10;
    memcpy(got, residual, 5 * sizeof(double));
    memcpy(got + 5, error, 5 * sizeof(double));
    memcpy(want, c->residual, 5 * sizeof(double));
    memcpy(want + 5, c->error, 5 * sizeof(double));
    got[10] = surface;
    want[10] = c->surface;
    for (int m = 0; m < count; m++)
        if (ok && !(fabs((got[m] - want[m]) / want[m]) <= 1e-8)) { /* written so that NaN fails */
            ok = 0;
            bad_got = got[m];
            bad_want = want[m];
        }
    return program_verdict(cfd_checksum(g, u), seconds, steps == c->steps, ok, bad_got, bad_want, steps, c->steps);
}

#endif
