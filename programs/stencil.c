/* A 3-D atmospheric stencil in the manner of SCALE's explicit (HEVE) dynamical core, written from the equations in
 * SCALE's published description: compressible, finite-volume on a staggered grid, 4th-order central fluxes,
 * 4th-order numerical diffusion, three-stage Runge-Kutta. Memory layout: 30 three-dimensional arrays, all static
 * (.bss) and sized for class C; a smaller class uses, and touches, only the front of each. An array is [y][x][z], z
 * innermost, with two halo cells on every side; every pass reads a handful of arrays from front to back.
 *
 * A warm bubble rises in a uniform wind, periodic in x and y between rigid floor and lid. Verified are the total
 * mass, which finite volumes conserve, and a norm of the result. --iterations N does N time steps. --whole-model holds what a
 * model has beside its dynamics, with equal results: 25 more arrays that its steps do not touch (the initial state, the metrics
 * of a grid that may follow the ground, output fields), and once a step a search for cells that are saturated.
 */
#include "program.h"

#include <math.h>

#define HALO 2
#define MAX_CELLS (80 * 260 * 258) /* class C with its halo */
#define MAX_Z 80
#define MAX_Y 258

#define DX 500.0
#define DY 500.0
#define DZ 250.0
#define DT 0.3 /* sound crosses 0.4 of a cell's height */
#define GRAVITY 9.80665
#define GAS 287.04
#define CP 1004.64
#define CV (CP - GAS)
#define P00 1.0e5
#define THETA 300.0
#define WIND_X 10.0
#define WIND_Y 5.0
#define DIFFUSION 0.01 /* per step; the shortest wave along an axis loses 16 times this */
#define MASS_EPSILON 1e-10
#define NORM_EPSILON 1e-9

typedef struct {
    char name;
    int nx, ny, nz, steps;
    double norm; /* what this program gave when it was written */
} stencil_class;

static const stencil_class classes[] = {
    {'S', 26, 26, 16, 100, 7.719526912670844e+00},
    {'W', 58, 58, 32, 50, 1.431857916808137e+01},
    {'A', 104, 104, 44, 30, 2.267174261452306e+01},
    {'B', 184, 182, 60, 20, 3.172057151160692e+01},
    {'C', 256, 254, 76, 20, 4.546598804648180e+01},
};

/* Density, momenta and density times potential temperature. A momentum at index c is on the face between cell c and
 * its upper neighbour in the momentum's own direction. */
enum { DENS, MOMZ, MOMX, MOMY, RHOT, VARIABLES };
enum { Z, X, Y, DIRECTIONS };

static double state[3][VARIABLES][MAX_CELLS]; /* the step's base, and the two Runge-Kutta stages between */
static double tendency[VARIABLES][MAX_CELLS]; /* numerical diffusion, held over the stages as SCALE does */
static double velocity[DIRECTIONS][MAX_CELLS], theta[MAX_CELLS], pressure[MAX_CELLS]; /* diagnosed each stage */
static double base_pressure[MAX_CELLS], pressure_slope[MAX_CELLS];                    /* pressure, linearised in RHOT */
static double flux[DIRECTIONS][MAX_CELLS];
static double reference[VARIABLES][MAX_Z], reference_pressure[MAX_Z]; /* the hydrostatic atmosphere */
static double row_sum[MAX_Y];

static int nx, ny, nz;            /* without halo */
static int ax, ay, az;            /* with halo */
static long stride[DIRECTIONS];   /* from a cell to its upper neighbour */
static const double per_metre[DIRECTIONS] = {1.0 / DZ, 1.0 / DX, 1.0 / DY};

/* The first cell of a column. */
static inline long column_at(int j, int i) {
    return ((long)j * ax + i) * az;
}

/* Columns from (first_j, first_i) up to, not including, (end_j, end_i). One body for every pass over the grid. */
#define FOR_COLUMNS(first_j, end_j, first_i, end_i)              \
    _Pragma("omp parallel for collapse(2) schedule(static)")     \
    for (int j = (first_j); j < (end_j); j++)                    \
        for (int i = (first_i); i < (end_i); i++)

static void make_grid(const stencil_class *c) {
    nx = c->nx, ny = c->ny, nz = c->nz;
    ax = nx + 2 * HALO, ay = ny + 2 * HALO, az = nz + 2 * HALO;
    stride[Z] = 1, stride[X] = az, stride[Y] = (long)az * ax;
}

static double pressure_of(double rhot) {
    return P00 * pow(GAS * rhot / P00, CP / CV);
}

/* Floor and lid first (mirrored, or for the vertical momentum turned about), then x, then whole rows in y, so that
 * the corners come out right. */
static void fill_halo(double *f, int variable) {
#pragma omp parallel for schedule(static)
    for (int j = HALO; j < ny + HALO; j++) {
        for (int i = HALO; i < nx + HALO; i++) {
            double *floor = &f[column_at(j, i)], *lid = floor + nz + HALO;
            if (variable == MOMZ) {
                floor[1] = lid[-1] = 0.0;
                floor[0] = -floor[2];
                lid[0] = -lid[-2];
                lid[1] = -lid[-3];
            } else {
                floor[1] = floor[2];
                floor[0] = floor[3];
                lid[0] = lid[-1];
                lid[1] = lid[-2];
            }
        }
        size_t bytes = HALO * (size_t)az * sizeof *f;
        memcpy(&f[column_at(j, 0)], &f[column_at(j, nx)], bytes);
        memcpy(&f[column_at(j, nx + HALO)], &f[column_at(j, HALO)], bytes);
    }
#pragma omp parallel for schedule(static)
    for (int h = 0; h < 2 * HALO; h++) {
        int to = h < HALO ? h : ny + h, from = h < HALO ? ny + h : h;
        memcpy(&f[column_at(to, 0)], &f[column_at(from, 0)], (size_t)stride[Y] * sizeof *f);
    }
}

/* An atmosphere of uniform potential temperature, in balance, and in it a bubble up to 2 K warmer: less dense at the
 * same pressure, so that it starts without a bang. */
static void initialise(void) {
    for (int k = 0; k < az; k++) {
        int level = k < HALO ? 2 * HALO - 1 - k : k >= nz + HALO ? 2 * (nz + HALO) - 1 - k : k;
        double exner = 1.0 - GRAVITY * (level - HALO + 0.5) * DZ / (CP * THETA);
        reference[RHOT][k] = P00 / GAS * pow(exner, CV / GAS);
        reference[DENS][k] = reference[RHOT][k] / THETA;
        reference[MOMX][k] = reference[DENS][k] * WIND_X;
        reference[MOMY][k] = reference[DENS][k] * WIND_Y;
        reference_pressure[k] = pressure_of(reference[RHOT][k]);
    }
    FOR_COLUMNS(HALO, ny + HALO, HALO, nx + HALO) {
        long at = column_at(j, i);
        double x = 4.0 * ((i - HALO + 0.5) / nx - 0.5), y = 4.0 * ((j - HALO + 0.5) / ny - 0.5);
        for (int k = HALO; k < nz + HALO; k++) {
            double z = 4.0 * ((k - HALO + 0.5) / nz - 0.3), r = sqrt(x * x + y * y + z * z);
            double warmer = r < 1.0 ? 2.0 * pow(cos(0.5 * M_PI * r), 2) : 0.0;
            state[0][DENS][at + k] = reference[DENS][k] * THETA / (THETA + warmer);
            state[0][RHOT][at + k] = reference[RHOT][k];
            state[0][MOMX][at + k] = reference[MOMX][k];
            state[0][MOMY][at + k] = reference[MOMY][k];
            state[0][MOMZ][at + k] = 0.0;
        }
    }
    for (int v = 0; v < VARIABLES; v++) fill_halo(state[0][v], v);
}

/* Pressure at the step's beginning and its slope: the power is taken once a step, not in every stage. */
static void linearise_pressure(void) {
    FOR_COLUMNS(0, ay, 0, ax) {
        long at = column_at(j, i);
        for (int k = 0; k < az; k++) {
            double rhot = state[0][RHOT][at + k], p = pressure_of(rhot);
            base_pressure[at + k] = p - reference_pressure[k];
            pressure_slope[at + k] = CP / CV * p / rhot;
        }
    }
}

/* The tendency of 4th-order diffusion of one variable's difference from the reference, through fluxes so that it
 * conserves what it spreads. */
static void diffuse(int variable) {
    const double *f = state[0][variable], *ref = reference[variable];
    const long sx = stride[X], sy = stride[Y];
    FOR_COLUMNS(HALO - 1, ny + HALO, HALO - 1, nx + HALO) {
        long at = column_at(j, i);
        const double *c = f + at;
        double *fz = flux[Z] + at, *fx = flux[X] + at, *fy = flux[Y] + at;
#pragma omp simd
        for (int k = HALO - 1; k < nz + HALO; k++) {
            double below = c[k] - ref[k], above = c[k + 1] - ref[k + 1];
            fz[k] = (c[k + 2] - ref[k + 2]) - (c[k - 1] - ref[k - 1]) - 3.0 * (above - below);
            fx[k] = c[k + 2 * sx] - c[k - sx] - 3.0 * (c[k + sx] - c[k]);
            fy[k] = c[k + 2 * sy] - c[k - sy] - 3.0 * (c[k + sy] - c[k]);
        }
    }
    FOR_COLUMNS(HALO, ny + HALO, HALO, nx + HALO) {
        long at = column_at(j, i);
        const double *fz = flux[Z] + at, *fx = flux[X] + at, *fy = flux[Y] + at;
        double *t = tendency[variable] + at;
#pragma omp simd
        for (int k = HALO; k < nz + HALO; k++)
            t[k] = -DIFFUSION / DT * ((fz[k] - fz[k - 1]) + (fx[k] - fx[k - sx]) + (fy[k] - fy[k - sy]));
    }
}

/* Velocities on the faces; potential temperature and the pressure's difference from the reference in the cells. */
static void diagnose(double (*in)[MAX_CELLS]) {
    const long sx = stride[X], sy = stride[Y];
    FOR_COLUMNS(0, ay, 0, ax) {
        long at = column_at(j, i);
        const double *rho = in[DENS] + at, *rhot = in[RHOT] + at, *rhot0 = state[0][RHOT] + at;
        const double *mz = in[MOMZ] + at, *mx = in[MOMX] + at, *my = in[MOMY] + at;
        const double *p0 = base_pressure + at, *slope = pressure_slope + at;
        double *w = velocity[Z] + at, *u = velocity[X] + at, *v = velocity[Y] + at, *t = theta + at, *p = pressure + at;
        /* The outermost columns have no neighbour beyond; nothing asks for a velocity there. */
        long dx = i < ax - 1 ? sx : 0, dy = j < ay - 1 ? sy : 0;
#pragma omp simd
        for (int k = 0; k < az; k++) {
            t[k] = rhot[k] / rho[k];
            p[k] = p0[k] + slope[k] * (rhot[k] - rhot0[k]);
            u[k] = 2.0 * mx[k] / (rho[k] + rho[k + dx]);
            v[k] = 2.0 * my[k] / (rho[k] + rho[k + dy]);
        }
#pragma omp simd
        for (int k = 0; k < az - 1; k++) w[k] = 2.0 * mz[k] / (rho[k] + rho[k + 1]);
    }
}

/* Fluxes of `q`, lying half a cell along `shift`, carried by `by`: at index c between q's c and its neighbour. The
 * carrier's mean over `shift` is at just that place, also along q's own direction; for a quantity in the cells
 * `shift` is 0 and the mean is the carrier itself. */
static void carry(const double *quantity, double *const by[DIRECTIONS], long shift) {
    const long sx = stride[X], sy = stride[Y];
    const double near = 7.0 / 12.0 * 0.5, far = 1.0 / 12.0 * 0.5;
    FOR_COLUMNS(HALO - 1, ny + HALO, HALO - 1, nx + HALO) {
        long at = column_at(j, i);
        const double *q = quantity + at, *w = by[Z] + at, *u = by[X] + at, *v = by[Y] + at;
        double *fz = flux[Z] + at, *fx = flux[X] + at, *fy = flux[Y] + at;
#pragma omp simd
        for (int k = HALO - 1; k < nz + HALO; k++) {
            fz[k] = (w[k] + w[k + shift]) * (near * (q[k] + q[k + 1]) - far * (q[k - 1] + q[k + 2]));
            fx[k] = (u[k] + u[k + shift]) * (near * (q[k] + q[k + sx]) - far * (q[k - sx] + q[k + 2 * sx]));
            fy[k] = (v[k] + v[k + shift]) * (near * (q[k] + q[k + sy]) - far * (q[k - sy] + q[k + 2 * sy]));
        }
    }
}

/* out = base + dt (tendency - divergence of `by` - pressure gradient along `shift` - weight). */
static void advance(int variable, double (*in)[MAX_CELLS], double (*out)[MAX_CELLS], double *const by[DIRECTIONS],
                    long shift, double dt) {
    const long sx = stride[X], sy = stride[Y];
    const int top = variable == MOMZ ? nz + HALO - 1 : nz + HALO; /* none of it passes the lid */
    const double gradient = shift ? per_metre[shift == 1 ? Z : shift == sx ? X : Y] : 0.0;
    FOR_COLUMNS(HALO, ny + HALO, HALO, nx + HALO) {
        long at = column_at(j, i);
        const double *fz = by[Z] + at, *fx = by[X] + at, *fy = by[Y] + at, *t = tendency[variable] + at;
        const double *p = pressure + at, *from = state[0][variable] + at;
        double *to = out[variable] + at;
#pragma omp simd
        for (int k = HALO; k < top; k++)
            to[k] = from[k] + dt * (t[k] - (fz[k] - fz[k - 1]) * per_metre[Z] - (fx[k] - fx[k - sx]) * per_metre[X] -
                                    (fy[k] - fy[k - sy]) * per_metre[Y] - (p[k + shift] - p[k]) * gradient);
        if (variable == MOMZ) {
            const double *rho = in[DENS] + at, *ref = reference[DENS];
#pragma omp simd
            for (int k = HALO; k < top; k++)
                to[k] -= dt * GRAVITY * 0.5 * ((rho[k] - ref[k]) + (rho[k + 1] - ref[k + 1]));
        }
    }
    fill_halo(out[variable], variable);
}

/* One Runge-Kutta stage: from the step's base, by the slopes of `in`, to `out` (which may be the base itself). */
static void stage(double (*in)[MAX_CELLS], double (*out)[MAX_CELLS], double dt) {
    double *const momentum[DIRECTIONS] = {in[MOMZ], in[MOMX], in[MOMY]};
    double *const wind[DIRECTIONS] = {velocity[Z], velocity[X], velocity[Y]};
    double *const fluxes[DIRECTIONS] = {flux[Z], flux[X], flux[Y]};
    diagnose(in);
    advance(DENS, in, out, momentum, 0, dt);
    for (int d = 0; d < DIRECTIONS; d++) {
        carry(momentum[d], wind, stride[d]);
        advance(MOMZ + d, in, out, fluxes, stride[d], dt);
    }
    carry(theta, momentum, 0);
    advance(RHOT, in, out, fluxes, 0, dt);
}

/* The arrays that --whole-model adds: arrays like those above, from the heap, as large as the class. */
enum { METRICS = 15, OUTPUTS = 5, WHOLE = VARIABLES + METRICS + OUTPUTS };
static double *whole[WHOLE];
static double *const *const initial = whole, *const *const metric = whole + VARIABLES, *const *const output = whole + VARIABLES + METRICS;

/* The state as it begins, and the metrics of flat ground: every worker fills the rows that it also has at the end. */
static void begin_whole_model(void) {
    size_t cells = (size_t)ax * ay * az;
    for (int n = 0; n < WHOLE; n++)
        if (!(whole[n] = malloc(cells * sizeof(double)))) {
            fprintf(stderr, "stencil: no memory for %d arrays more\n", WHOLE);
            exit(1);
        }
#pragma omp parallel for schedule(static)
    for (int j = 0; j < ay; j++) {
        long from = column_at(j, 0), to = column_at(j + 1, 0);
        size_t bytes = (size_t)(to - from) * sizeof(double);
        for (int v = 0; v < VARIABLES; v++) memcpy(&initial[v][from], &state[0][v][from], bytes);
        for (int m = 0; m < METRICS; m++)
            for (long at = from; at < to; at++) metric[m][at] = m < 7 ? 1.0 : 0.0;
        for (int o = 0; o < OUTPUTS; o++) memset(&output[o][from], 0, bytes);
    }
}

#define SATURATION_STEPS 20

/* The temperature that each cell's air would have if it were saturated and then dried to the humidity of the floor, by Newton's
 * method on Tetens' formula: the innermost loop of every bulk microphysics. The air is dry, so nothing comes of it but a
 * row's greatest difference. */
static void saturate(void) {
    FOR_COLUMNS(HALO, ny + HALO, HALO, nx + HALO) {
        long at = column_at(j, i);
        double most = 0.0;
        for (int k = HALO; k < nz + HALO; k++) {
            double p = base_pressure[at + k] + reference_pressure[k];
            double dry = state[0][RHOT][at + k] / state[0][DENS][at + k] * pow(p / P00, GAS / CP), wet = dry;
            for (int n = 0; n < SATURATION_STEPS; n++) {
                double vapour = 610.78 * exp(17.27 * (wet - 273.16) / (wet - 35.86)), q = 0.622 * vapour / p;
                double slope = q * 17.27 * 237.3 / ((wet - 35.86) * (wet - 35.86)), heat = 2.5e6 / CP;
                wet -= (wet - dry - heat * (0.01 - q)) / (1.0 + heat * slope);
            }
            most = fmax(most, fabs(wet - dry));
        }
        if (!isfinite(most)) row_sum[j - HALO] = most;
    }
}

static void step(void) {
    linearise_pressure();
    for (int v = 0; v < VARIABLES; v++) diffuse(v);
    stage(state[0], state[1], DT / 3.0);
    stage(state[1], state[2], DT / 2.0);
    stage(state[2], state[0], DT);
}

/* Adds `term` to a sum whose lost low bits are kept in `lost` (Kahan). */
static inline void add_compensated(double *sum, double *lost, double term) {
    double y = term - *lost, t = *sum + y;
    *lost = (t - *sum) - y;
    *sum = t;
}

static double add_rows(void) {
    double sum = 0.0, lost = 0.0;
    for (int j = 0; j < ny; j++) add_compensated(&sum, &lost, row_sum[j]);
    return sum;
}

/* Output fields, weighted by the metrics, and how far the state is from where it began. */
static double end_whole_model(void) {
#pragma omp parallel for schedule(static)
    for (int j = 0; j < ay; j++) {
        if (j < HALO || j >= ny + HALO) continue;
        double sum = 0.0;
        for (int i = HALO; i < nx + HALO; i++) {
            long at = column_at(j, i);
            for (int k = HALO; k < nz + HALO; k++) {
                double weight = 0.0;
                for (int m = 0; m < METRICS; m++) weight += metric[m][at + k];
                for (int v = 0; v < VARIABLES; v++) {
                    double change = state[0][v][at + k] - initial[v][at + k];
                    output[v][at + k] = weight / 7.0 * change;
                    sum += output[v][at + k] * output[v][at + k];
                }
            }
        }
        row_sum[j - HALO] = sum;
    }
    return sqrt(add_rows());
}

/* The sum over all cells of density, or of the squared differences of all variables from the reference. A row's sum
 * is one thread's and the rows are added in order, so the thread count does not show. */
static double sum_cells(int squares) {
#pragma omp parallel for schedule(static)
    for (int j = HALO; j < ny + HALO; j++) {
        double sum = 0.0, lost = 0.0;
        for (int i = HALO; i < nx + HALO; i++)
            for (int k = HALO; k < nz + HALO; k++)
                for (int v = 0; v < (squares ? VARIABLES : 1); v++) {
                    double value = state[0][v][column_at(j, i) + k], d = value - reference[v][k];
                    add_compensated(&sum, &lost, squares ? d * d : value);
                }
        row_sum[j - HALO] = sum;
    }
    return add_rows();
}

/* Rows' checksums are taken in parallel and then checksummed in order. */
static uint64_t checksum_state(void) {
    uint64_t sums[MAX_Y];
#pragma omp parallel for schedule(static)
    for (int j = 0; j < ny; j++) {
        uint64_t sum = PROGRAM_CHECKSUM_SEED;
        for (int v = 0; v < VARIABLES; v++)
            for (int i = HALO; i < nx + HALO; i++)
                sum = program_checksum(sum, &state[0][v][column_at(j + HALO, i) + HALO], (size_t)nz * sizeof(double));
        sums[j] = sum;
    }
    return program_checksum(PROGRAM_CHECKSUM_SEED, sums, (size_t)ny * sizeof *sums);
}

int main(int argc, char **argv) {
    int is_whole = program_has(&argc, argv, "--whole-model");
    program_options o = program_parse(argc, argv);
    const stencil_class *c = classes;
    while (c->name != o.class_) c++;
    int steps = o.iterations ? o.iterations : c->steps;

    make_grid(c);
    initialise();
    if (is_whole) begin_whole_model();
    double mass = sum_cells(0);
    printf("Stencil class %c: %d x %d x %d cells, %d steps\n", c->name, nx, ny, nz, steps);

    double start = program_seconds();
    for (int s = 0; s < steps; s++) {
        step();
        if (is_whole) saturate();
    }
    double seconds = program_seconds() - start;

    double change = fabs(sum_cells(0) - mass) / mass, norm = sqrt(sum_cells(1));
    printf("Mass: %.15e, changed by %.3e of it\n", mass, change);
    printf("Norm: %.15e\n", norm);
    if (is_whole) printf("Changed since the beginning by: %.15e\n", end_whole_model());
    int mass_ok = change <= MASS_EPSILON, norm_ok = fabs(norm - c->norm) / c->norm <= NORM_EPSILON;
    /* Mass is conserved whatever the number of steps; the norm is known for one. */
    return program_verdict(checksum_state(), seconds, steps == c->steps || !mass_ok, mass_ok && norm_ok,
                           mass_ok ? norm : change, mass_ok ? c->norm : 0.0, steps, c->steps);
}
