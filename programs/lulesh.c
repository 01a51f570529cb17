/* Lulesh: a blast wave on a mesh that moves with the material, in the manner of LULESH, Livermore's proxy for such codes:
 * sweeps over elements and over nodes of hexahedra in turn, over many arrays. The scheme is simpler than LULESH's, and
 * conserves energy to the last bits: an element's work is what its forces on its corners do (compatible hydrodynamics), in
 * two passes a step, to the middle of it and from there. Forces are those of pressure, of an artificial viscosity, and
 * against hourglass motion (Flanagan and Belytschko).
 *
 * Memory layout: what nodes have is static (.bss), sized for class C, of which a smaller class touches the front; what
 * elements have is on the heap. `corner_force`, as large as half of the rest, is allocated and freed in every pass, as LULESH
 * does. A sweep over elements reads its corners' nodes through `element_node`: a plane of nodes beyond the worker's own;
 * one over nodes gathers through `node_corner`. The time step is a minimum over all elements.
 *
 * Verified: mass, volume and energy are what they were, to 1e-11; exchanging the axes changes the energies by no more than
 * 1e-8 of the greatest; and the wave is where Sedov and Taylor say, (E t^2 / (0.851 density))^(1/5), to two cells of the mesh.
 * --iterations N does N steps.
 */
#include "program.h"

#include <math.h>

#define CORNERS 8
#define FACES 6
#define MODES 4 /* of hourglass motion */
#define MAX_SIDE 128
#define MAX_NODES ((MAX_SIDE + 1) * (MAX_SIDE + 1) * (MAX_SIDE + 1))
#define GAMMA 1.4
#define SEDOV 0.851 /* of this gamma */
#define DENSITY 1.0
#define BLAST 0.1 /* energy, of the octant that is computed */
#define COURANT 0.3
#define MOST_SHRINK 0.1 /* of an element's volume in one step */
#define MOST_GROWTH 1.1 /* of the time step */
#define QUADRATIC 2.0   /* artificial viscosity, and its linear part */
#define LINEAR 0.3
#define HOURGLASS 0.03
#define CONSERVED 1e-11
#define SYMMETRIC 1e-8
#define NEAR_SEDOV 2.0 /* sides of an element */

typedef struct {
    char name;
    int side, steps;
} lulesh_class;

static const lulesh_class classes[] = {{'S', 10, 40}, {'W', 20, 80}, {'A', 60, 40}, {'B', 96, 60}, {'C', 128, 60}};

/* Nodes. A step begins with `start_…` and moves by `motion`, the mean of a pass's old and new velocity. */
static double position[3][MAX_NODES], start_position[3][MAX_NODES];
static double velocity[3][MAX_NODES], start_velocity[3][MAX_NODES], motion[3][MAX_NODES];
static double force[3][MAX_NODES], nodal_mass[MAX_NODES];
static int node_corner_start[MAX_NODES + 1];

/* Elements. `energy` is all of an element's, not that of a unit of its mass. */
static int *element_node; /* CORNERS of each */
static int *node_corner;  /* element * CORNERS + corner, of each node in ascending order */
static double *energy, *start_energy, *pressure, *viscosity, *sound_speed, *volume, *element_mass, *time_limit;
static double *corner_force[3];
static double *row_sum;

static int side, elements, nodes;

/* Corner c is at the upper end in direction d if bit d of c is set. Corners of a face go round it, seen from outside
 * against the clock. */
static const int face_corner[FACES][4] = {{0, 4, 6, 2}, {1, 3, 7, 5}, {0, 1, 5, 4}, {2, 6, 7, 3}, {0, 2, 3, 1}, {4, 5, 7, 6}};

static void *allocated(size_t count, size_t bytes) {
    void *block = malloc(count * bytes);
    if (!block) {
        fprintf(stderr, "lulesh: no memory for %zu times %zu bytes\n", count, bytes);
        exit(1);
    }
    return block;
}

static inline int node_at(int x, int y, int z) {
    return (z * (side + 1) + y) * (side + 1) + x;
}

static inline int element_at(int x, int y, int z) {
    return (z * side + y) * side + x;
}

static inline void cross(const double a[3], const double b[3], double out[3]) {
    for (int d = 0; d < 3; d++) out[d] = a[(d + 1) % 3] * b[(d + 2) % 3] - a[(d + 2) % 3] * b[(d + 1) % 3];
}

static inline double product(const double a[3], const double b[3]) {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

/* Gathers a node's array at the corners of an element. */
static inline void take_corners(int e, double (*of)[MAX_NODES], double out[CORNERS][3]) {
    const int *node = &element_node[(size_t)e * CORNERS];
    for (int c = 0; c < CORNERS; c++)
        for (int d = 0; d < 3; d++) out[c][d] = of[d][node[c]];
}

/* The volume of an element, each face of which is taken as four triangles about its middle; how it changes with each corner's
 * position, unless `slope` is NULL; and the square of its greatest face. */
static inline double volume_of(double corner[CORNERS][3], double (*slope)[3], double *greatest_face) {
    double sum = 0.0;
    *greatest_face = 0.0;
    if (slope) memset(slope, 0, CORNERS * sizeof *slope);
    for (int f = 0; f < FACES; f++) {
        const int *at = face_corner[f];
        const double *a = corner[at[0]], *b = corner[at[1]], *c = corner[at[2]], *d = corner[at[3]];
        double middle[3], up[3], across[3], area[3];
        for (int i = 0; i < 3; i++) {
            /* About a corner of the element: its place in the mesh is not to cost digits. */
            middle[i] = a[i] + b[i] + c[i] + d[i] - 4.0 * corner[0][i];
            up[i] = c[i] - a[i];
            across[i] = d[i] - b[i];
        }
        cross(up, across, area);
        sum += product(middle, area);
        double square = 0.25 * product(area, area);
        if (square > *greatest_face) *greatest_face = square;
        if (!slope) continue;
        double with_up[3], with_across[3];
        cross(across, middle, with_up);
        cross(middle, up, with_across);
        for (int i = 0; i < 3; i++) {
            slope[at[0]][i] += (area[i] - with_up[i]) / 24.0;
            slope[at[1]][i] += (area[i] - with_across[i]) / 24.0;
            slope[at[2]][i] += (area[i] + with_up[i]) / 24.0;
            slope[at[3]][i] += (area[i] + with_across[i]) / 24.0;
        }
    }
    return sum / 24.0;
}

/* +1 or -1: each corner in each mode. */
static const double mode_sign[MODES][CORNERS] = {
    {1, -1, -1, 1, 1, -1, -1, 1}, /* xy */
    {1, 1, -1, -1, -1, -1, 1, 1}, /* yz */
    {1, -1, 1, -1, -1, 1, -1, 1}, /* zx */
    {-1, 1, 1, -1, 1, -1, -1, 1}, /* xyz */
};

/* Adds forces against those motions of the corners that change no volume and no shape that pressure would feel. */
static void resist_hourglass(int e, double corner[CORNERS][3], double slope[CORNERS][3], double out[CORNERS][3]) {
    double moving[CORNERS][3];
    take_corners(e, velocity, moving);
    double strength = HOURGLASS * sound_speed[e] * element_mass[e] / cbrt(volume[e]);
    for (int m = 0; m < MODES; m++) {
        double shape[CORNERS], twist[3] = {0.0}, speed[3] = {0.0};
        for (int c = 0; c < CORNERS; c++)
            for (int d = 0; d < 3; d++) twist[d] += mode_sign[m][c] * (corner[c][d] - corner[0][d]);
        for (int c = 0; c < CORNERS; c++) {
            shape[c] = mode_sign[m][c] - product(slope[c], twist) / volume[e];
            for (int d = 0; d < 3; d++) speed[d] += shape[c] * moving[c][d];
        }
        for (int c = 0; c < CORNERS; c++)
            for (int d = 0; d < 3; d++) out[c][d] -= strength * shape[c] * speed[d];
    }
}

static void compute_corner_forces(void) {
    for (int d = 0; d < 3; d++) corner_force[d] = allocated((size_t)elements * CORNERS, sizeof **corner_force);
#pragma omp parallel for schedule(static)
    for (int e = 0; e < elements; e++) {
        double corner[CORNERS][3], slope[CORNERS][3], out[CORNERS][3], face;
        take_corners(e, position, corner);
        volume_of(corner, slope, &face);
        for (int c = 0; c < CORNERS; c++)
            for (int d = 0; d < 3; d++) out[c][d] = (pressure[e] + viscosity[e]) * slope[c][d];
        resist_hourglass(e, corner, slope, out);
        for (int c = 0; c < CORNERS; c++)
            for (int d = 0; d < 3; d++) corner_force[d][(size_t)e * CORNERS + (size_t)c] = out[c][d];
    }
}

static void release_corner_forces(void) {
    for (int d = 0; d < 3; d++) free(corner_force[d]);
}

static void gather_forces(void) {
#pragma omp parallel for schedule(static)
    for (int n = 0; n < nodes; n++) {
        double sum[3] = {0.0};
        for (int k = node_corner_start[n]; k < node_corner_start[n + 1]; k++)
            for (int d = 0; d < 3; d++) sum[d] += corner_force[d][node_corner[k]];
        for (int d = 0; d < 3; d++) force[d][n] = sum[d];
    }
}

/* The planes through the origin are mirrors: nothing pushes a node off them. */
static void hold_mirrors(void) {
    int row = side + 1;
#pragma omp parallel
    {
#pragma omp for schedule(static) nowait
        for (int i = 0; i < row * row; i++) force[0][node_at(0, i % row, i / row)] = 0.0;
#pragma omp for schedule(static) nowait
        for (int i = 0; i < row * row; i++) force[1][node_at(i % row, 0, i / row)] = 0.0;
#pragma omp for schedule(static)
        for (int i = 0; i < row * row; i++) force[2][node_at(i % row, i / row, 0)] = 0.0;
    }
}

static void move_nodes(double dt) {
#pragma omp parallel for schedule(static)
    for (int n = 0; n < nodes; n++)
        for (int d = 0; d < 3; d++) {
            double faster = start_velocity[d][n] + dt * force[d][n] / nodal_mass[n];
            motion[d][n] = 0.5 * (start_velocity[d][n] + faster);
            velocity[d][n] = faster;
            position[d][n] = start_position[d][n] + dt * motion[d][n];
        }
}

/* Takes the work that an element's corners did to their nodes from its energy. */
static void do_work(double dt) {
#pragma omp parallel for schedule(static)
    for (int e = 0; e < elements; e++) {
        const int *node = &element_node[(size_t)e * CORNERS];
        double power = 0.0;
        for (int c = 0; c < CORNERS; c++)
            for (int d = 0; d < 3; d++) power += corner_force[d][(size_t)e * CORNERS + (size_t)c] * motion[d][node[c]];
        energy[e] = start_energy[e] - dt * power;
    }
}

/* Volume, pressure, viscosity, speed of sound, and how long a step may be. */
static void update_state(void) {
#pragma omp parallel for schedule(static)
    for (int e = 0; e < elements; e++) {
        double corner[CORNERS][3], moving[CORNERS][3], slope[CORNERS][3], face, growth = 0.0;
        take_corners(e, position, corner);
        take_corners(e, velocity, moving);
        double v = volume_of(corner, slope, &face);
        for (int c = 0; c < CORNERS; c++) growth += product(slope[c], moving[c]) / v;
        double density = element_mass[e] / v, shrink = growth < 0.0 ? -cbrt(v) * growth : 0.0;
        volume[e] = v;
        pressure[e] = (GAMMA - 1.0) * energy[e] / v;
        sound_speed[e] = sqrt(fmax(GAMMA * pressure[e] / density, 0.0));
        viscosity[e] = density * shrink * (QUADRATIC * shrink + LINEAR * sound_speed[e]);
        double fastest = sound_speed[e] + 2.0 * QUADRATIC * shrink + 1e-20;
        time_limit[e] = fmin(COURANT * v / sqrt(face) / fastest, MOST_SHRINK / (fabs(growth) + 1e-20));
    }
}

static double time_step(double last) {
    double least = 1e30;
#pragma omp parallel for schedule(static) reduction(min : least)
    for (int e = 0; e < elements; e++) least = fmin(least, time_limit[e]);
    return last > 0.0 ? fmin(least, MOST_GROWTH * last) : 0.1 * least;
}

static void keep_start(void) {
#pragma omp parallel
    {
#pragma omp for schedule(static) nowait
        for (int n = 0; n < nodes; n++)
            for (int d = 0; d < 3; d++) {
                start_position[d][n] = position[d][n];
                start_velocity[d][n] = velocity[d][n];
            }
#pragma omp for schedule(static)
        for (int e = 0; e < elements; e++) start_energy[e] = energy[e];
    }
}

/* Moves from the step's start by `dt`, with the forces of where the nodes are now. */
static void pass(double dt) {
    compute_corner_forces();
    gather_forces();
    hold_mirrors();
    move_nodes(dt);
    do_work(dt);
    update_state();
    release_corner_forces();
}

static void step(double dt) {
    keep_start();
    pass(0.5 * dt);
    pass(dt);
}

static void make_mesh(void) {
    int row = side + 1;
#pragma omp parallel for schedule(static)
    for (int n = 0; n < nodes; n++) {
        int place[3] = {n % row, n / row % row, n / row / row};
        for (int d = 0; d < 3; d++) position[d][n] = (double)place[d] / side;
        int corners = 1;
        for (int d = 0; d < 3; d++) corners *= 1 + (place[d] > 0 && place[d] < side);
        node_corner_start[n + 1] = corners;
    }
    for (int n = 0; n < nodes; n++) node_corner_start[n + 1] += node_corner_start[n];
#pragma omp parallel for schedule(static)
    for (int e = 0; e < elements; e++)
        for (int c = 0; c < CORNERS; c++)
            element_node[(size_t)e * CORNERS + (size_t)c] =
                node_at(e % side + (c & 1), e / side % side + (c >> 1 & 1), e / side / side + (c >> 2));
#pragma omp parallel for schedule(static)
    for (int n = 0; n < nodes; n++) {
        int place[3] = {n % row, n / row % row, n / row / row}, at = node_corner_start[n];
        for (int c = CORNERS - 1; c >= 0; c--) { /* the highest corner is that of the element before */
            int x = place[0] - (c & 1), y = place[1] - (c >> 1 & 1), z = place[2] - (c >> 2);
            if (x < 0 || y < 0 || z < 0 || x >= side || y >= side || z >= side) continue;
            node_corner[at++] = element_at(x, y, z) * CORNERS + c;
        }
        nodal_mass[n] = DENSITY * (at - node_corner_start[n]) / CORNERS / ((double)side * side * side);
    }
}

static void make_state(void) {
#pragma omp parallel for schedule(static)
    for (int e = 0; e < elements; e++) {
        element_mass[e] = DENSITY / ((double)side * side * side);
        energy[e] = e == 0 ? BLAST : 0.0;
    }
    update_state();
}

/* Adds up what `of` gives for each of `n` items, by rows of them: a row is one thread's, and the rows are added in order. */
static double sum_over(int n, double (*of)(int)) {
    int rows = (n + side - 1) / side;
#pragma omp parallel for schedule(static)
    for (int r = 0; r < rows; r++) {
        double sum = 0.0;
        for (int i = r * side; i < (r + 1) * side && i < n; i++) sum += of(i);
        row_sum[r] = sum;
    }
    double sum = 0.0;
    for (int r = 0; r < rows; r++) sum += row_sum[r];
    return sum;
}

static double volume_at(int e) {
    return volume[e];
}

static double energy_at(int e) {
    return energy[e];
}

static double mass_at(int n) {
    return nodal_mass[n];
}

static double motion_energy_at(int n) {
    double square = 0.0;
    for (int d = 0; d < 3; d++) square += velocity[d][n] * velocity[d][n];
    return 0.5 * nodal_mass[n] * square;
}

/* Viscosity is where the wave is: its weight, and that times the distance from the origin. */
static double wave_at(int e) {
    return viscosity[e] * volume[e];
}

static double wave_distance_at(int e) {
    double corner[CORNERS][3], middle[3] = {0.0};
    take_corners(e, position, corner);
    for (int c = 0; c < CORNERS; c++)
        for (int d = 0; d < 3; d++) middle[d] += corner[c][d] / CORNERS;
    return wave_at(e) * sqrt(product(middle, middle));
}

/* The greatest difference between the energies of elements that are each other's image when the axes go round or two of
 * them change places, as a share of the greatest energy. */
static double asymmetry(void) {
    double off = 0.0, greatest = 0.0;
#pragma omp parallel for schedule(static) reduction(max : off, greatest)
    for (int e = 0; e < elements; e++) {
        int x = e % side, y = e / side % side, z = e / side / side;
        greatest = fmax(greatest, energy[e]);
        off = fmax(off, fabs(energy[e] - energy[element_at(y, z, x)]));
        off = fmax(off, fabs(energy[e] - energy[element_at(y, x, z)]));
        if (!isfinite(energy[e])) off = INFINITY;
    }
    return off / greatest;
}

static void allocate(void) {
    element_node = allocated((size_t)elements * CORNERS, sizeof *element_node);
    node_corner = allocated((size_t)elements * CORNERS, sizeof *node_corner);
    double **array[] = {&energy, &start_energy, &pressure, &viscosity, &sound_speed, &volume, &element_mass, &time_limit};
    for (size_t a = 0; a < sizeof array / sizeof *array; a++) *array[a] = allocated((size_t)elements, sizeof(double));
    row_sum = allocated((size_t)nodes / (size_t)side + 1, sizeof *row_sum);
}

static void release(void) {
    double *array[] = {energy, start_energy, pressure, viscosity, sound_speed, volume, element_mass, time_limit, row_sum};
    for (size_t a = 0; a < sizeof array / sizeof *array; a++) free(array[a]);
    free(node_corner);
    free(element_node);
}

/* Prints what is not as it should be; returns how far the worst is beyond its tolerance. */
static double verify(double now, int complete) {
    double total = sum_over(elements, energy_at) + sum_over(nodes, motion_energy_at);
    double off_energy = fabs(total / BLAST - 1.0), off_mass = fabs(sum_over(nodes, mass_at) / DENSITY - 1.0);
    double off_volume = fabs(sum_over(elements, volume_at) - 1.0), off_axes = asymmetry();
    double radius = sum_over(elements, wave_distance_at) / sum_over(elements, wave_at);
    double known = pow(8.0 * BLAST * now * now / (SEDOV * DENSITY), 0.2), off_radius = fabs(radius - known) * side;
    printf("Off by, of the whole: energy %.2e, mass %.2e, volume %.2e; axes exchanged %.2e\n", off_energy, off_mass,
           off_volume, off_axes);
    printf("Wave at %.5f at time %.5f, known to be at %.5f\n", radius, now, known);
    double worst = fmax(fmax(off_energy, off_mass), off_volume) / CONSERVED;
    worst = fmax(worst, off_axes / SYMMETRIC);
    if (complete) worst = fmax(worst, off_radius / NEAR_SEDOV);
    return isfinite(off_energy) && isfinite(off_volume) ? worst : INFINITY;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const lulesh_class *c = classes;
    while (c->name != o.class_) c++;
    int steps = o.iterations ? o.iterations : c->steps;

    side = c->side, elements = side * side * side, nodes = (side + 1) * (side + 1) * (side + 1);
    allocate();
    make_mesh();
    make_state();
    printf("Lulesh class %c: %d elements, %d nodes, %d steps\n", c->name, elements, nodes, steps);

    double start = program_seconds(), now = 0.0, dt = 0.0;
    for (int s = 0; s < steps; s++) {
        dt = time_step(dt);
        step(dt);
        now += dt;
    }
    double seconds = program_seconds() - start;

    double worst = verify(now, steps == c->steps);
    uint64_t sum = program_checksum(PROGRAM_CHECKSUM_SEED, energy, (size_t)elements * sizeof *energy);
    for (int d = 0; d < 3; d++) sum = program_checksum(sum, position[d], (size_t)nodes * sizeof(double));
    release();
    /* Energy and symmetry are verified for fewer steps, too; where the wave is, for one number. In more it leaves the mesh. */
    int applicable = steps == c->steps || (steps < c->steps && !(worst <= 1.0));
    return program_verdict(sum, seconds, applicable, worst <= 1.0, worst, 1.0, steps, c->steps);
}
