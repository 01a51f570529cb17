/* NAS Parallel Benchmark BT (NAS-95-020, section 3.7.3, "block tridiagonal"): the flow problem of npb_cfd.h stepped by
 * approximate factorisation, each step solving a block tridiagonal system of 5x5 blocks along every grid line in x,
 * then y, then z. Threads share out planes; a line's blocks live in the thread's own workspace, which holds, for each
 * point of one line, 5 rows of 6: the eliminated upper block and right-hand side that back substitution needs. The
 * lower and middle blocks are built when elimination reaches them, never stored.
 */
#include "npb_cfd.h"

static const cfd_class classes[] = {
    {'S', 12, 60, 0.010,
     {1.7034283709541311e-01, 1.2975252070034097e-02, 3.2527926989486055e-02, 2.6436421275166801e-02,
      1.9211784131744430e-01},
     {4.9976913345811579e-04, 4.5195666782961927e-05, 7.3973765172921357e-05, 7.3821238632439731e-05,
      8.9269630987491446e-04}, 0.0},
    {'W', 24, 200, 0.0008,
     {0.1125590409344e+03, 0.1180007595731e+02, 0.2710329767846e+02, 0.2469174937669e+02, 0.2638427874317e+03},
     {0.4419655736008e+01, 0.4638531260002e+00, 0.1011551749967e+01, 0.9235878729944e+00, 0.1018045837718e+02}, 0.0},
    {'A', 64, 200, 0.0008,
     {1.0806346714637264e+02, 1.1319730901220813e+01, 2.5974354511582465e+01, 2.3665622544678910e+01,
      2.5278963211748344e+02},
     {4.2348416040525025e+00, 4.4390282496995698e-01, 9.6692480136345650e-01, 8.8302063039765474e-01,
      9.7379901770829278e+00}, 0.0},
    {'B', 102, 200, 0.0003,
     {1.4233597229287254e+03, 9.9330522590150238e+01, 3.5646025644535285e+02, 3.2485447959084092e+02,
      3.2707541254659363e+03},
     {5.2969847140936856e+01, 4.4632896115670668e+00, 1.3122573342210174e+01, 1.2006925323559144e+01,
      1.2459576151035986e+02}, 0.0},
    {'C', 162, 200, 0.0001,
     {0.62398116551764615e+04, 0.50793239190423964e+03, 0.15423530093013596e+04, 0.13302387929291190e+04,
      0.11604087428436455e+05},
     {0.16462008369091265e+03, 0.11497107903824313e+02, 0.41207446207461508e+02, 0.37087651059694167e+02,
      0.36211053051841265e+03}, 0.0},
};

static cfd_grid grid;
static cfd_state state;
static double **workspaces;

/* One line's elimination works on rows of 12 doubles: the middle block (5), the right-hand side (1), the upper block
 * (5) and one of padding, so that the row operations run over whole vectors. */
enum { RHS = 5, UPPER = 6, WIDTH = 12, KEPT = 6 };
typedef double tableau[5][WIDTH] __attribute__((aligned(16)));
typedef double kept_rows[5][KEPT];

/* Turns the middle block into the identity; there is no pivoting, the blocks being diagonally dominant. */
CFD_INLINE void eliminate(tableau w) {
#pragma GCC unroll 5
    for (int p = 0; p < 5; p++) {
        const double pivot = 1.0 / w[p][p];
        const int from = p & ~1; /* what lies left of p is not read again */
#pragma GCC unroll 12
        for (int x = from; x < WIDTH; x++) w[p][x] *= pivot;
#pragma GCC unroll 5
        for (int q = 0; q < 5; q++) {
            if (q == p) continue;
            const double factor = w[q][p];
#pragma GCC unroll 12
            for (int x = from; x < WIDTH; x++) w[q][x] -= factor * w[p][x];
        }
    }
}

/* Solves the line that starts at cell `first`, in place in rhs. */
CFD_INLINE void solve_line(const int d, size_t first, kept_rows *kept) {
    const int n = grid.n;
    const size_t s = grid.stride[d];
    const double first_order = grid.dt * grid.t2, second_order = grid.dt * grid.t1;
    const double diffusion = second_order * CFD_DIFFUSION[d];
    const double *u = state.u + 5 * first;
    double *rhs = state.rhs + 5 * first;
    double jacobians[3][2][5][5]; /* of the points m-1, m and m+1, at m modulo 3 */

    /* The end points are fixed: identity blocks and no change. */
    memset(kept[0], 0, sizeof kept[0]);
    cfd_jacobians(d, u, jacobians[0][0], jacobians[0][1]);
    cfd_jacobians(d, u + 5 * s, jacobians[1][0], jacobians[1][1]);
    int below = 0, here = 1, above = 2;
    for (int m = 1; m < n - 1; m++) {
        tableau w;
        double (*f)[5], (*v)[5];
        cfd_jacobians(d, u + 5 * s * (size_t)(m + 1), jacobians[above][0], jacobians[above][1]);
        f = jacobians[above][0];
        v = jacobians[above][1];
        for (int x = 0; x < 5; x++) {
            for (int y = 0; y < 5; y++) {
                w[x][UPPER + y] = first_order * f[x][y] - second_order * v[x][y];
                w[x][y] = 2.0 * second_order * jacobians[here][1][x][y];
            }
            w[x][UPPER + x] -= diffusion;
            w[x][x] += 1.0 + 2.0 * diffusion;
            w[x][RHS] = rhs[5 * s * (size_t)m + (size_t)x];
            w[x][WIDTH - 1] = 0.0;
        }
        f = jacobians[below][0];
        v = jacobians[below][1];
        for (int x = 0; x < 5; x++)
            for (int y = 0; y < 5; y++) {
                double lower = -first_order * f[x][y] - second_order * v[x][y] - (x == y ? diffusion : 0.0);
                for (int z = 0; z < KEPT; z++) w[x][z] -= lower * kept[m - 1][y][z];
            }
        eliminate(w);
        for (int x = 0; x < 5; x++) {
            for (int y = 0; y < 5; y++) kept[m][x][y] = w[x][UPPER + y];
            kept[m][x][RHS] = w[x][RHS];
        }
        int spare = below;
        below = here;
        here = above;
        above = spare;
    }
    double next[5] = {0, 0, 0, 0, 0};
    for (int m = n - 2; m > 0; m--) {
        double *r = rhs + 5 * s * (size_t)m, now[5];
        for (int x = 0; x < 5; x++) {
            now[x] = kept[m][x][RHS];
            for (int y = 0; y < 5; y++) now[x] -= kept[m][x][y] * next[y];
        }
        for (int x = 0; x < 5; x++) next[x] = r[x] = now[x];
    }
}

/* The systems are independent of each other, so sharing them out changes no bit of the result. */
static void x_solve(void) {
#pragma omp parallel for schedule(static)
    for (int k = 1; k < grid.n - 1; k++)
        for (int j = 1; j < grid.n - 1; j++)
            solve_line(0, cfd_at(&grid, 0, j, k), (kept_rows *)workspaces[omp_get_thread_num()]);
}

static void y_solve(void) {
#pragma omp parallel for schedule(static)
    for (int k = 1; k < grid.n - 1; k++)
        for (int i = 1; i < grid.n - 1; i++)
            solve_line(1, cfd_at(&grid, i, 0, k), (kept_rows *)workspaces[omp_get_thread_num()]);
}

static void z_solve(void) {
#pragma omp parallel for schedule(static)
    for (int j = 1; j < grid.n - 1; j++)
        for (int i = 1; i < grid.n - 1; i++)
            solve_line(2, cfd_at(&grid, i, j, 0), (kept_rows *)workspaces[omp_get_thread_num()]);
}

int main(int argc, char **argv) {
    const program_options options = program_parse(argc, argv);
    const cfd_class *class_ = cfd_find_class(classes, options.class_);
    const int steps = options.iterations ? options.iterations : class_->steps;
    double residual[5], error[5];

    grid = cfd_make_grid(class_);
    state = cfd_make_state(&grid, 0);
    workspaces = cfd_workspaces((size_t)grid.n * sizeof(kept_rows) / sizeof(double));
    cfd_compute_forcing(&grid, &state);
    cfd_set_initial(&grid, state.u);

    const double start = program_seconds();
    for (int step = 0; step < steps; step++) {
        cfd_compute_rhs(&grid, &state, grid.dt);
        x_solve();
        y_solve();
        z_solve();
        cfd_add(&grid, state.u, state.rhs, 1.0);
    }
    const double seconds = program_seconds() - start;

    cfd_norm(&grid, state.u, 1, error);
    cfd_compute_rhs(&grid, &state, 1.0);
    cfd_norm(&grid, state.rhs, 0, residual);
    return cfd_verdict(&grid, class_, state.u, residual, error, 0.0, seconds, steps);
}
