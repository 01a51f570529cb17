/* NAS Parallel Benchmark LU (NAS-95-020, section 3.7.1, the lower-upper symmetric Gauss-Seidel solver): the flow
 * problem of npb_cfd.h stepped by symmetric successive over-relaxation, each step a sweep of 5x5 block triangular
 * systems from one corner of the grid to the opposite one and a sweep back. A cell's update needs its three updated
 * neighbours, so the sweeps are pipelined: every thread owns a range of y, goes through the planes of z in order, and
 * starts a plane when its neighbour in y has counted that plane done. Besides the fields u, rsd (residual, then
 * increment) and frct (source term), 1/density and kinetic energy are kept for each cell; a thread's workspace holds
 * the blocks of one grid row or the fluxes of one grid line.
 */
#include <sched.h>

#include "npb_cfd.h"

static const cfd_class classes[] = {
    {'S', 12, 50, 0.5,
     {1.6196343210976702e-02, 2.1976745164821318e-03, 1.5179927653399185e-03, 1.5029584435994323e-03,
      3.4264073155896461e-02},
     {6.4223319957960924e-04, 8.4144342047347926e-05, 5.8588269616485186e-05, 5.8474222595157350e-05,
      1.3103347914111294e-03}, 7.8418928865937083e+00},
    {'W', 33, 300, 0.0015,
     {0.1236511638192e+02, 0.1317228477799e+01, 0.2550120713095e+01, 0.2326187750252e+01, 0.2826799444189e+02},
     {0.4867877144216e+00, 0.5064652880982e-01, 0.9281818101960e-01, 0.8570126542733e-01, 0.1084277417792e+01},
     0.1161399311023e+02},
    {'A', 64, 250, 2.0,
     {7.7902107606689367e+02, 6.3402765259692870e+01, 1.9499249727292479e+02, 1.7845301160418537e+02,
      1.8384760349464247e+03},
     {2.9964085685471943e+01, 2.8194576365003349e+00, 7.3473412698774742e+00, 6.7139225687777051e+00,
      7.0715315688392578e+01}, 2.6030925604886277e+01},
    {'B', 102, 250, 2.0,
     {3.5532672969982736e+03, 2.6214750795310692e+02, 8.8333721850952190e+02, 7.7812774739425265e+02,
      7.3087969592545314e+03},
     {1.1401176380212709e+02, 8.1098963655421574e+00, 2.8480597317698308e+01, 2.5905394567832939e+01,
      2.6054907504857413e+02}, 4.7887162703308227e+01},
    {'C', 162, 250, 2.0,
     {1.03766980323537846e+04, 8.92212458801008552e+02, 2.56238814582660871e+03, 2.19194343857831427e+03,
      1.78078057261061185e+04},
     {2.15986399716949279e+02, 1.55789559239863600e+01, 5.41318863077207766e+01, 4.82262643154045421e+01,
      4.55902910043250358e+02}, 6.66404553572181300e+01},
};

static const double OMEGA = 1.2;

static cfd_grid grid;
static double *u, *rsd, *frct, *rho_i, *kinetic;
static double **workspaces;

/* The contribution of one point of a grid line to the residual. */
typedef struct {
    double u[5]; /* first, so that a component recurs every sizeof(flux_point) */
    double convective[5];
    double primitive[5]; /* the velocities at their momenta's places, their square at 0, energy per mass at 4 */
    double viscous[5];   /* between the point before and this one */
} flux_point;

/* The contribution of one cell of a grid row to a sweep: the diagonal block with its right-hand side as sixth column,
 * and the block of its neighbour in the row. */
typedef struct {
    double diagonal[5][6];
    double beside[5][5];
} sweep_cell;

/* Adds direction d's share of the spatial operator along the line that starts at cell `first`. */
CFD_INLINE void flux_line(const int d, size_t first, flux_point *w) {
    const int n = grid.n, a = 1 + d, e = 1 + (d + 1) % 3, o = 1 + (d + 2) % 3;
    const size_t s = grid.stride[d];
    const double t2 = grid.t2, t3 = 1.0 / grid.h, diffusion = CFD_DIFFUSION[d] * grid.t1;
    for (int m = 0; m < n; m++) {
        const size_t c = first + s * (size_t)m;
        const double *cell = u + 5 * c;
        flux_point *p = &w[m];
        for (int x = 0; x < 5; x++) p->u[x] = cell[x];
        const double q = p->u[a] * rho_i[c];
        p->convective[0] = p->u[a];
        for (int x = 1; x < 4; x++) p->convective[x] = p->u[x] * q;
        p->convective[a] += C2 * (p->u[4] - kinetic[c]);
        p->convective[4] = (C1 * p->u[4] - C2 * kinetic[c]) * q;
        for (int x = 1; x < 5; x++) p->primitive[x] = p->u[x] * rho_i[c];
        p->primitive[0] = 2.0 * kinetic[c] * rho_i[c];
    }
    for (int m = 1; m < n; m++) {
        const double *here = w[m].primitive, *before = w[m - 1].primitive;
        double *v = w[m].viscous;
        v[a] = CON43 * t3 * (here[a] - before[a]);
        v[e] = t3 * (here[e] - before[e]);
        v[o] = t3 * (here[o] - before[o]);
        v[4] = 0.5 * (1.0 - C1C5) * t3 * (here[0] - before[0]) +
               CON16 * t3 * (here[a] * here[a] - before[a] * before[a]) + C1C5 * t3 * (here[4] - before[4]);
    }
    for (int m = 1; m < n - 1; m++) {
        double *r = rsd + 5 * (first + s * (size_t)m);
        const flux_point *p = &w[m];
        for (int x = 0; x < 5; x++) {
            double sum = r[x] - t2 * (p[1].convective[x] - p[-1].convective[x]) +
                         diffusion * (p[1].u[x] - 2.0 * p->u[x] + p[-1].u[x]);
            if (x) sum += C3C4 * t3 * (p[1].viscous[x] - p->viscous[x]);
            r[x] = sum - CFD_DSSP * cfd_fourth((const double *)p + x, sizeof(flux_point) / sizeof(double), m, n);
        }
    }
}

/* rsd = the spatial operator of u, less the source term. */
static void compute_rhs(void) {
    const int n = grid.n;
#pragma omp parallel
    {
        flux_point *w = (flux_point *)workspaces[omp_get_thread_num()];
#pragma omp for schedule(static)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) {
                const size_t row = cfd_at(&grid, 0, j, k);
                for (size_t c = row; c < row + (size_t)n; c++) {
                    const double *cell = u + 5 * c;
                    rho_i[c] = 1.0 / cell[0];
                    kinetic[c] = 0.5 * (cell[1] * cell[1] + cell[2] * cell[2] + cell[3] * cell[3]) * rho_i[c];
                    for (int x = 0; x < 5; x++) rsd[5 * c + (size_t)x] = -frct[5 * c + (size_t)x];
                }
            }
        /* The next two give each thread the same planes, so that no barrier is needed between them. */
#pragma omp for schedule(static) nowait
        for (int k = 1; k < n - 1; k++)
            for (int j = 1; j < n - 1; j++) flux_line(0, cfd_at(&grid, 0, j, k), w);
#pragma omp for schedule(static)
        for (int k = 1; k < n - 1; k++)
            for (int i = 1; i < n - 1; i++) flux_line(1, cfd_at(&grid, i, 0, k), w);
#pragma omp for schedule(static)
        for (int j = 1; j < n - 1; j++)
            for (int i = 1; i < n - 1; i++) flux_line(2, cfd_at(&grid, i, j, 0), w);
    }
}

/* The number of planes each thread has finished in this step, over both sweeps; a cache line of its own for each, since the
 * neighbour polls it. */
static struct {
    long planes;
    char fill[120];
} *progress;

static void wait_for(int thread, long planes) {
    for (int spins = 0;; spins++) {
        long seen;
#pragma omp atomic read acquire
        seen = progress[thread].planes;
        if (seen >= planes) return;
        /* With more threads than processors the one waited for may need this processor. */
        if (spins >= 200) sched_yield();
    }
}

static void announce(int thread) {
#pragma omp atomic update release
    progress[thread].planes++;
}

/* The block by which the neighbour at cell c, on the given side (-1 before, +1 after) in direction d, enters. */
CFD_INLINE void neighbour_block(const int d, const int side, size_t c, double block[5][5]) {
    const double first_order = side * grid.dt * grid.t2, second_order = grid.dt * grid.t1;
    double f[5][5], v[5][5];
    cfd_jacobians(d, u + 5 * c, f, v);
    for (int x = 0; x < 5; x++) {
        for (int y = 0; y < 5; y++) block[x][y] = first_order * f[x][y] - second_order * v[x][y];
        block[x][x] -= second_order * CFD_DIFFUSION[d];
    }
}

CFD_INLINE void diagonal_block(size_t c, double block[5][6]) {
    const double second_order = 2.0 * grid.dt * grid.t1;
    double f[5][5], vx[5][5], vy[5][5], vz[5][5];
    cfd_jacobians(0, u + 5 * c, f, vx);
    cfd_jacobians(1, u + 5 * c, f, vy);
    cfd_jacobians(2, u + 5 * c, f, vz);
    for (int x = 0; x < 5; x++) {
        for (int y = 0; y < 5; y++) block[x][y] = second_order * (vx[x][y] + vy[x][y] + vz[x][y]);
        block[x][x] += 1.0 + second_order * (CFD_DIFFUSION[0] + CFD_DIFFUSION[1] + CFD_DIFFUSION[2]);
    }
}

/* Gauss elimination without pivoting, the blocks being diagonally dominant; the answer replaces the sixth column. */
CFD_INLINE void solve_block(double w[5][6]) {
#pragma GCC unroll 5
    for (int p = 0; p < 4; p++) {
        const double inverse = 1.0 / w[p][p];
#pragma GCC unroll 5
        for (int q = p + 1; q < 5; q++) {
            const double factor = w[q][p] * inverse;
#pragma GCC unroll 6
            for (int x = p + 1; x < 6; x++) w[q][x] -= factor * w[p][x];
        }
    }
#pragma GCC unroll 5
    for (int p = 4; p >= 0; p--) {
#pragma GCC unroll 5
        for (int x = p + 1; x < 5; x++) w[p][5] -= w[p][x] * w[x][5];
        w[p][5] /= w[p][p];
    }
}

/* column 5 of w += factor * block * v */
CFD_INLINE void accumulate(double w[5][6], double factor, double block[5][5], const double *v) {
    for (int x = 0; x < 5; x++) {
        double sum = 0.0;
        for (int y = 0; y < 5; y++) sum += block[x][y] * v[y];
        w[x][5] += factor * sum;
    }
}

/* One row of a sweep; side -1 goes up the row with the neighbours before (the lower system), +1 down it with those
 * after (the upper one). The neighbours in y and z are final when the row is begun, those in x as it goes along. */
CFD_INLINE void sweep_row(const int side, int j, int k, sweep_cell *w) {
    const int n = grid.n;
    const ptrdiff_t sy = side * (ptrdiff_t)grid.stride[1], sz = side * (ptrdiff_t)grid.stride[2];
    /* The lower system solves for the new value, the upper one for what is to be taken off it. */
    const double factor = side < 0 ? -OMEGA : OMEGA;
    for (int i = 1; i < n - 1; i++) {
        const size_t c = cfd_at(&grid, i, j, k), cy = c + (size_t)sy, cz = c + (size_t)sz;
        double block[5][5];
        diagonal_block(c, w[i].diagonal);
        for (int x = 0; x < 5; x++) w[i].diagonal[x][5] = side < 0 ? rsd[5 * c + (size_t)x] : 0.0;
        neighbour_block(2, side, cz, block);
        accumulate(w[i].diagonal, factor, block, rsd + 5 * cz);
        neighbour_block(1, side, cy, block);
        accumulate(w[i].diagonal, factor, block, rsd + 5 * cy);
        neighbour_block(0, side, c + (size_t)side, w[i].beside);
    }
    for (int at = 1; at < n - 1; at++) {
        const int i = side < 0 ? at : n - 1 - at;
        double *r = rsd + 5 * cfd_at(&grid, i, j, k);
        accumulate(w[i].diagonal, factor, w[i].beside, r + 5 * side);
        solve_block(w[i].diagonal);
        for (int x = 0; x < 5; x++) r[x] = side < 0 ? w[i].diagonal[x][5] : r[x] - w[i].diagonal[x][5];
    }
}

/* One sweep by the whole team, `base` planes having been finished before it. Threads with no rows pass the count on. */
CFD_INLINE void sweep(const int side, long base) {
    const int n = grid.n, me = omp_get_thread_num(), threads = omp_get_num_threads();
    /* The same rows as a static loop over them gives this thread: those it also has along z in compute_rhs. */
    const int each = (n - 2) / threads, more = (n - 2) % threads;
    const int from = 1 + each * me + (me < more ? me : more), to = from + each + (me < more);
    const int upstream = me + side;
    sweep_cell *w = (sweep_cell *)workspaces[me];
    for (int plane = 1; plane < n - 1; plane++) {
        if (upstream >= 0 && upstream < threads) wait_for(upstream, base + plane);
        if (side < 0)
            for (int j = from; j < to; j++) sweep_row(-1, j, plane, w);
        else
            for (int j = to - 1; j >= from; j--) sweep_row(1, j, n - 1 - plane, w);
        announce(me);
    }
}

static void relax(void) {
    const int n = grid.n;
#pragma omp parallel
    {
        /* Seen by all before anyone polls: the loop ends in a barrier. */
        progress[omp_get_thread_num()].planes = 0;
#pragma omp for schedule(static)
        for (int k = 1; k < n - 1; k++)
            for (int j = 1; j < n - 1; j++) {
                double *r = rsd + 5 * cfd_at(&grid, 1, j, k);
                for (int x = 0; x < 5 * (n - 2); x++) r[x] *= grid.dt;
            }
        sweep(-1, 0);
#pragma omp barrier
        sweep(1, n - 2);
    }
    cfd_add(&grid, u, rsd, 1.0 / (OMEGA * (2.0 - OMEGA)));
}

static double pressure(const int at[3]) {
    const double *c = u + 5 * cfd_at(&grid, at[0], at[1], at[2]);
    return C2 * (c[4] - 0.5 * (c[1] * c[1] + c[2] * c[2] + c[3] * c[3]) / c[0]);
}

/* The integral of the pressure over the surface of a box inside the grid, by the trapezoidal rule. */
static double surface_integral(void) {
    const int from[3] = {1, 1, 2}, to[3] = {grid.n - 2, grid.n - 3, grid.n - 2};
    double total = 0.0;
    for (int d = 0; d < 3; d++) {
        const int e = (d + 1) % 3, f = (d + 2) % 3;
        double sum = 0.0;
        for (int end = 0; end < 2; end++)
            for (int y = from[f]; y <= to[f]; y++)
                for (int x = from[e]; x <= to[e]; x++) {
                    int at[3];
                    double weight = (x == from[e] || x == to[e] ? 1.0 : 2.0) * (y == from[f] || y == to[f] ? 1.0 : 2.0);
                    at[d] = end ? to[d] : from[d];
                    at[e] = x;
                    at[f] = y;
                    sum += weight * pressure(at);
                }
        total += sum * grid.h * grid.h;
    }
    return 0.25 * total;
}

int main(int argc, char **argv) {
    const program_options options = program_parse(argc, argv);
    const cfd_class *class_ = cfd_find_class(classes, options.class_);
    const int steps = options.iterations ? options.iterations : class_->steps;
    const size_t threads = (size_t)omp_get_max_threads();
    const size_t flux = sizeof(flux_point), cell = sizeof(sweep_cell);
    double residual[5], error[5];

    grid = cfd_make_grid(class_);
    u = cfd_field(&grid, 5);
    rsd = cfd_field(&grid, 5);
    frct = cfd_field(&grid, 5);
    rho_i = cfd_field(&grid, 1);
    kinetic = cfd_field(&grid, 1);
    workspaces = cfd_workspaces((size_t)grid.n * (flux > cell ? flux : cell) / sizeof(double));
    progress = cfd_allocate(threads * sizeof *progress);
    memset(progress, 0, threads * sizeof *progress);

    /* The source term is the operator of the exact solution; frct is still zero here. */
    cfd_set_exact(&grid, u);
    compute_rhs();
    memcpy(frct, rsd, 5 * grid.cells * sizeof *frct);
    cfd_set_initial(&grid, u);

    compute_rhs();
    const double start = program_seconds();
    for (int step = 0; step < steps; step++) {
        relax();
        compute_rhs();
    }
    const double seconds = program_seconds() - start;

    cfd_norm(&grid, u, 1, error);
    cfd_norm(&grid, rsd, 0, residual);
    return cfd_verdict(&grid, class_, u, residual, error, surface_integral(), seconds, steps);
}
