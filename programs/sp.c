/* NAS Parallel Benchmark SP (NAS-95-020, section 3.7.2, "scalar pentadiagonal"): the flow problem of npb_cfd.h stepped
 * by the diagonalised approximate factorisation. In each direction the right-hand side is carried to the eigenvectors
 * of that direction's flux Jacobian, where the five components part: three share one pentadiagonal matrix (the flow's
 * own speed), the other two have each their own (that speed plus and minus sound's). Threads share out planes. Lines
 * are solved BATCH at a time, the workspace of a thread holding for each point of the lines its bands and right-hand
 * sides with the lines side by side, which turns five short recurrences into vector operations.
 */
#include "npb_cfd.h"

static const cfd_class classes[] = {
    {'S', 12, 100, 0.015,
     {2.7470315451339479e-02, 1.0360746705285417e-02, 1.6235745065095532e-02, 1.5840557224455615e-02,
      3.4849040609362460e-02},
     {2.7289258557377227e-05, 1.0364446640837285e-05, 1.6154798287166471e-05, 1.5750704994480102e-05,
      3.4177666183390531e-05}, 0.0},
    {'W', 36, 400, 0.0015,
     {0.1893253733584e-02, 0.1717075447775e-03, 0.2778153350936e-03, 0.2887475409984e-03, 0.3143611161242e-02},
     {0.7542088599534e-04, 0.6512852253086e-05, 0.1049092285688e-04, 0.1128838671535e-04, 0.1212845639773e-03}, 0.0},
    {'A', 64, 400, 0.0015,
     {2.4799822399300195, 1.1276337964368832, 1.5028977888770491, 1.4217816211695179, 2.1292113035138280},
     {1.0900140297820550e-04, 3.7343951769282091e-05, 5.0092785406541633e-05, 4.7671093939528255e-05,
      1.3621613399213001e-04}, 0.0},
    {'B', 102, 400, 0.001,
     {0.6903293579998e+02, 0.3095134488084e+02, 0.4103336647017e+02, 0.3864769009604e+02, 0.5643482272596e+02},
     {0.9810006190188e-02, 0.1022827905670e-02, 0.1720597911692e-02, 0.1694479428231e-02, 0.1847456263981e-01}, 0.0},
    {'C', 162, 400, 0.00067,
     {0.5881691581829e+03, 0.2454417603569e+03, 0.3293829191851e+03, 0.3081924971891e+03, 0.4597223799176e+03},
     {0.2598120500183e+00, 0.2590888922315e-01, 0.5132886416320e-01, 0.4806073419454e-01, 0.5483377491301e+00}, 0.0},
};

static cfd_grid grid;
static cfd_state state;
static double **workspaces;

static const double ROOT_HALF = 0.70710678118654752440;

/* Bands 0..4 are the distances -2..2 from the diagonal. */
enum { BATCH = 16, BANDS = 5, MATRICES = 3 };
typedef struct {
    double band[MATRICES][BANDS][BATCH];
    double r[5][BATCH];
} __attribute__((aligned(64))) point;

/* Loops over the cells inside the grid, its planes shared out among the threads. */
#define FOR_INNER_CELLS(c)                                                \
    _Pragma("omp parallel for schedule(static)")                          \
    for (int k = 1; k < grid.n - 1; k++)                                  \
        for (int j = 1; j < grid.n - 1; j++)                              \
            for (size_t c = cfd_at(&grid, 1, j, k), end_ = c + (size_t)(grid.n - 2); c < end_; c++)

/* Into the eigenvectors of the x Jacobian. */
static void to_x(void) {
    FOR_INNER_CELLS(c) {
        double *r = state.rhs + 5 * c;
        const double density_i = state.rho_i[c], sound = state.speed[c];
        const double vx = state.velocity[0][c], vy = state.velocity[1][c], vz = state.velocity[2][c];
        const double pressure =
            C2 / (sound * sound) * (state.qs[c] * r[0] - vx * r[1] - vy * r[2] - vz * r[3] + r[4]);
        const double flow = ROOT_HALF * density_i * (vx * r[0] - r[1]);
        const double wave = ROOT_HALF * density_i * sound * pressure;
        const double r0 = r[0];
        r[0] = r0 - pressure;
        r[1] = -density_i * (vz * r0 - r[3]);
        r[2] = density_i * (vy * r0 - r[2]);
        r[3] = wave - flow;
        r[4] = wave + flow;
    }
}

/* Carries the right-hand side from the eigenvectors of x to those of y. */
static void x_to_y(void) {
    FOR_INNER_CELLS(c) {
        double *r = state.rhs + 5 * c;
        const double r0 = r[0], t = ROOT_HALF * r[2], mean = 0.5 * (r[3] + r[4]);
        r[0] = -r[1];
        r[1] = r0;
        r[2] = ROOT_HALF * (r[3] - r[4]);
        r[3] = mean - t;
        r[4] = mean + t;
    }
}

/* Carries the right-hand side from the eigenvectors of y to those of z. */
static void y_to_z(void) {
    FOR_INNER_CELLS(c) {
        double *r = state.rhs + 5 * c;
        const double t = ROOT_HALF * r[0], mean = 0.5 * (r[3] + r[4]), r1 = r[1];
        r[0] = ROOT_HALF * (r[3] - r[4]);
        r[1] = -r[2];
        r[2] = r1;
        r[3] = mean - t;
        r[4] = mean + t;
    }
}

/* Carries the right-hand side from the eigenvectors of z back to the flow's own variables. */
static void from_z(void) {
    FOR_INNER_CELLS(c) {
        double *r = state.rhs + 5 * c;
        const double density = state.u[5 * c], sound = state.speed[c];
        const double vx = state.velocity[0][c], vy = state.velocity[1][c], vz = state.velocity[2][c];
        const double wave = ROOT_HALF * density / sound * (r[3] + r[4]);
        const double mass = r[2] + wave, shear = ROOT_HALF * density * (r[3] - r[4]);
        const double r0 = r[0], r1 = r[1];
        r[0] = mass;
        r[1] = vx * mass - density * r1;
        r[2] = vy * mass + density * r0;
        r[3] = vz * mass + shear;
        r[4] = density * (vy * r0 - vx * r1) + state.qs[c] * mass + sound * sound / C2 * wave + vz * shear;
    }
}

/* The bands and right-hand sides of point m of `count` lines in direction d, the first line's point being cell c and
 * the lines `across` cells apart. Lanes without a line of their own repeat the last one, so that they compute nothing
 * strange; nobody reads them. */
CFD_INLINE void fill_point(const int d, point *p, int m, size_t c, size_t across, int count) {
    const int n = grid.n;
    const ptrdiff_t s = (ptrdiff_t)grid.stride[d];
    const double *velocity = state.velocity[d], *rho_i = state.rho_i, *speed = state.speed;
    const double first_order = grid.dt * grid.t2, second_order = grid.dt * grid.t1;
    /* The implicit diffusion is that of the fastest diffusing quantity, heat. */
    const double heat = C3C4 * (C1C5 > CON43 ? C1C5 : CON43), diffusion = CFD_DIFFUSION[d];
    const double fourth = grid.dt * CFD_DSSP;
    double add[BANDS] = {fourth, -4.0 * fourth, 6.0 * fourth, -4.0 * fourth, fourth};
    if (m == 1 || m == n - 2) add[2] = 5.0 * fourth;
    if (m <= 2) add[0] = 0.0;
    if (m == 1) add[1] = 0.0;
    if (m >= n - 3) add[4] = 0.0;
    if (m == n - 2) add[3] = 0.0;
    for (int l = 0; l < BATCH; l++) {
        const size_t here = c + across * (size_t)(l < count ? l : count - 1);
        const size_t up = here + (size_t)s, down = here - (size_t)s;
        const double below =
            -first_order * velocity[down] - second_order * (diffusion + heat * rho_i[down]) + add[1];
        const double diagonal = 1.0 + 2.0 * second_order * (diffusion + heat * rho_i[here]) + add[2];
        const double above = first_order * velocity[up] - second_order * (diffusion + heat * rho_i[up]) + add[3];
        const double sound_below = first_order * speed[down], sound_above = first_order * speed[up];
        for (int x = 0; x < MATRICES; x++) {
            p->band[x][0][l] = add[0];
            p->band[x][2][l] = diagonal;
            p->band[x][4][l] = add[4];
        }
        p->band[0][1][l] = below;
        p->band[0][3][l] = above;
        p->band[1][1][l] = below - sound_below;
        p->band[1][3][l] = above + sound_above;
        p->band[2][1][l] = below + sound_below;
        p->band[2][3][l] = above - sound_above;
        for (int x = 0; x < 5; x++) p->r[x][l] = state.rhs[5 * here + (size_t)x];
    }
}

/* Takes band `column` of p's row out by the already normalised row q, which is that far above it: column 1 for the
 * neighbour, 0 for the one beyond. */
CFD_INLINE void eliminate(point *restrict p, const point *restrict q, const int matrix, const int column,
                          const int from, const int to) {
    double *restrict factor = p->band[matrix][column];
    double *restrict next = p->band[matrix][column + 1], *restrict beyond = p->band[matrix][column + 2];
    const double *restrict q3 = q->band[matrix][3], *restrict q4 = q->band[matrix][4];
    for (int l = 0; l < BATCH; l++) {
        next[l] -= factor[l] * q3[l];
        beyond[l] -= factor[l] * q4[l];
    }
    for (int x = from; x < to; x++)
        for (int l = 0; l < BATCH; l++) p->r[x][l] -= factor[l] * q->r[x][l];
}

/* Brings one matrix's row to a unit diagonal with nothing left of it. `one` and `two` are the rows above it, already
 * so. */
CFD_INLINE void reduce(point *restrict p, const point *restrict one, const point *restrict two, const int matrix,
                       const int from, const int to) {
    eliminate(p, two, matrix, 0, from, to);
    eliminate(p, one, matrix, 1, from, to);
    double inverse[BATCH];
    for (int l = 0; l < BATCH; l++) {
        inverse[l] = 1.0 / p->band[matrix][2][l];
        p->band[matrix][3][l] *= inverse[l];
        p->band[matrix][4][l] *= inverse[l];
    }
    for (int x = from; x < to; x++)
        for (int l = 0; l < BATCH; l++) p->r[x][l] *= inverse[l];
}

CFD_INLINE void substitute(point *restrict p, const point *restrict one, const point *restrict two, const int matrix,
                           const int from, const int to) {
    for (int x = from; x < to; x++)
        for (int l = 0; l < BATCH; l++)
            p->r[x][l] -= p->band[matrix][3][l] * one->r[x][l] + p->band[matrix][4][l] * two->r[x][l];
}

/* Solves `count` lines in place in rhs. The end points of a line do not change: their rows, and one more on either
 * side, stay zero in the workspace, so that the recurrences need no special cases. */
CFD_INLINE void solve_lines(const int d, size_t first, size_t across, int count, point *work) {
    const int n = grid.n;
    const size_t s = grid.stride[d];
    point *line = work + 1; /* line[-1] to line[n] */
    for (int m = 1; m < n - 1; m++) {
        fill_point(d, &line[m], m, first + s * (size_t)m, across, count);
        reduce(&line[m], &line[m - 1], &line[m - 2], 0, 0, 3);
        reduce(&line[m], &line[m - 1], &line[m - 2], 1, 3, 4);
        reduce(&line[m], &line[m - 1], &line[m - 2], 2, 4, 5);
    }
    for (int m = n - 2; m > 0; m--) {
        substitute(&line[m], &line[m + 1], &line[m + 2], 0, 0, 3);
        substitute(&line[m], &line[m + 1], &line[m + 2], 1, 3, 4);
        substitute(&line[m], &line[m + 1], &line[m + 2], 2, 4, 5);
        for (int l = 0; l < count; l++)
            for (int x = 0; x < 5; x++)
                state.rhs[5 * (first + s * (size_t)m + across * (size_t)l) + (size_t)x] = line[m].r[x][l];
    }
}

/* All lines in direction d, in batches that lie side by side in direction `side` and planes in direction `outer`. */
CFD_INLINE void solve_direction(const int d, const int side, const int outer) {
#pragma omp for schedule(static)
    for (int plane = 1; plane < grid.n - 1; plane++)
        for (int line = 1; line < grid.n - 1; line += BATCH) {
            int left = grid.n - 1 - line;
            size_t first = grid.stride[outer] * (size_t)plane + grid.stride[side] * (size_t)line;
            solve_lines(d, first, grid.stride[side], left < BATCH ? left : BATCH,
                        (point *)workspaces[omp_get_thread_num()]);
        }
}

static void x_solve(void) {
#pragma omp parallel
    solve_direction(0, 1, 2);
}

static void y_solve(void) {
#pragma omp parallel
    solve_direction(1, 0, 2);
}

static void z_solve(void) {
#pragma omp parallel
    solve_direction(2, 0, 1);
}

int main(int argc, char **argv) {
    const program_options options = program_parse(argc, argv);
    const cfd_class *class_ = cfd_find_class(classes, options.class_);
    const int steps = options.iterations ? options.iterations : class_->steps;
    double residual[5], error[5];

    grid = cfd_make_grid(class_);
    state = cfd_make_state(&grid, 1);
    workspaces = cfd_workspaces((size_t)(grid.n + 2) * sizeof(point) / sizeof(double));
    cfd_compute_forcing(&grid, &state);
    cfd_set_initial(&grid, state.u);

    const double start = program_seconds();
    for (int step = 0; step < steps; step++) {
        cfd_compute_rhs(&grid, &state, grid.dt);
        to_x();
        x_solve();
        x_to_y();
        y_solve();
        y_to_z();
        z_solve();
        from_z();
        cfd_add(&grid, state.u, state.rhs, 1.0);
    }
    const double seconds = program_seconds() - start;

    cfd_norm(&grid, state.u, 1, error);
    cfd_compute_rhs(&grid, &state, 1.0);
    cfd_norm(&grid, state.rhs, 0, residual);
    return cfd_verdict(&grid, class_, state.u, residual, error, 0.0, seconds, steps);
}
