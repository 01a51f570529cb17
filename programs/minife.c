/* MiniFE: a finite-element problem from mesh to solution, in the manner of the Mantevo project's miniFE: steady heat
 * conduction in a block of hexahedra, assembled into a sparse matrix and solved by conjugate gradients.
 *
 * Memory layout: the matrix is on the heap, in compressed rows (`matrix_row_start`, `matrix_column`, `matrix_value`), up to
 * 27 entries a row; the vectors (`solution`, `residual`, `direction`, `product`, `right_hand_side`) are static (.bss) and
 * sized for class C; a smaller class uses, and touches, only the front of each. Nodes are numbered with x fastest. A
 * product reads the matrix once from front to back and `direction` in nine strands, of three nodes each, one line and one
 * plane of the mesh apart; so a worker reads a plane beyond its own rows each way. Assembly goes by rows, each of which
 * gathers from the up to eight elements around its node.
 *
 * Verified: the temperature is prescribed all around as that of x^2 - y^2 + 2xyz + z - 3x, which solves the equation, and
 * which elements of this kind reproduce at the nodes of a regular mesh to the last bit but rounding. The solution is compared
 * at all nodes, to 1e-7. --iterations N does N steps of conjugate gradients.
 */
#include "program.h"

#include <math.h>

#define ROW_ENTRIES 27
#define MAX_SIDE 160 /* nodes along an edge in class C */
#define MAX_NODES (MAX_SIDE * MAX_SIDE * MAX_SIDE)
#define CORNERS 8
#define TOLERANCE 1e-7

/* Sums run over blocks of rows, and the blocks' sums are added in block order: equal bits for any thread count. */
#define BLOCK 512
#define MAX_BLOCKS ((MAX_NODES + BLOCK - 1) / BLOCK)

/* The block's measures: the elements are no cubes. */
static const double extent[3] = {1.0, 1.25, 0.8};

typedef struct {
    char name;
    int side, iterations;
} minife_class;

static const minife_class classes[] = {{'S', 14, 50}, {'W', 32, 120}, {'A', 80, 300}, {'B', 120, 450}, {'C', 160, 600}};

static int *matrix_row_start, *matrix_column;
static double *matrix_value;

static double solution[MAX_NODES], residual[MAX_NODES], direction[MAX_NODES], product[MAX_NODES];
static double right_hand_side[MAX_NODES];
static double partial_sum[MAX_BLOCKS];

static double element_matrix[CORNERS][CORNERS]; /* the same for all elements of a regular mesh */
static double spacing[3];
static int side, nodes;

static void *allocated(size_t count, size_t bytes) {
    void *block = malloc(count * bytes);
    if (!block) {
        fprintf(stderr, "minife: no memory for %zu times %zu bytes\n", count, bytes);
        exit(1);
    }
    return block;
}

/* Which end of an edge corner `c` is at, in direction d. */
static inline int corner_bit(int c, int d) {
    return c >> d & 1;
}

/* The integral over an element of the products of the shape functions' gradients, by Gauss's rule of two points a
 * direction, at which it is exact. */
static void make_element_matrix(void) {
    const double offset = 0.5 / sqrt(3.0);
    double volume = spacing[0] * spacing[1] * spacing[2];
    for (int point = 0; point < CORNERS; point++) {
        double gradient[CORNERS][3];
        for (int c = 0; c < CORNERS; c++)
            for (int d = 0; d < 3; d++) {
                gradient[c][d] = (corner_bit(c, d) ? 1.0 : -1.0) / spacing[d];
                for (int other = 0; other < 3; other++) {
                    double at = 0.5 + (corner_bit(point, other) ? offset : -offset);
                    if (other != d) gradient[c][d] *= corner_bit(c, other) ? at : 1.0 - at;
                }
            }
        for (int a = 0; a < CORNERS; a++)
            for (int b = 0; b < CORNERS; b++)
                for (int d = 0; d < 3; d++) element_matrix[a][b] += volume / 8.0 * gradient[a][d] * gradient[b][d];
    }
}

static inline void place_of(int node, int place[3]) {
    place[0] = node % side, place[1] = node / side % side, place[2] = node / side / side;
}

static inline int node_at(int x, int y, int z) {
    return (z * side + y) * side + x;
}

static inline int on_surface(const int place[3]) {
    for (int d = 0; d < 3; d++)
        if (place[d] == 0 || place[d] == side - 1) return 1;
    return 0;
}

static double temperature_at(const int place[3]) {
    double x = place[0] * spacing[0], y = place[1] * spacing[1], z = place[2] * spacing[2];
    return x * x - y * y + 2.0 * x * y * z + z - 3.0 * x;
}

/* Returns the number of a node's neighbours, itself among them. */
static int row_length(const int place[3]) {
    int length = 1;
    for (int d = 0; d < 3; d++) length *= 1 + (place[d] > 0) + (place[d] < side - 1);
    return length;
}

/* The columns of each row, in ascending order. */
static void make_structure(void) {
    matrix_row_start = allocated((size_t)nodes + 1, sizeof *matrix_row_start);
    matrix_row_start[0] = 0;
#pragma omp parallel for schedule(static)
    for (int row = 0; row < nodes; row++) {
        int place[3];
        place_of(row, place);
        matrix_row_start[row + 1] = row_length(place);
    }
    for (int row = 0; row < nodes; row++) matrix_row_start[row + 1] += matrix_row_start[row];
    matrix_column = allocated((size_t)matrix_row_start[nodes], sizeof *matrix_column);
    matrix_value = allocated((size_t)matrix_row_start[nodes], sizeof *matrix_value);
#pragma omp parallel for schedule(static)
    for (int row = 0; row < nodes; row++) {
        int p[3], at = matrix_row_start[row];
        place_of(row, p);
        for (int z = p[2] - 1; z <= p[2] + 1; z++)
            for (int y = p[1] - 1; y <= p[1] + 1; y++)
                for (int x = p[0] - 1; x <= p[0] + 1; x++) {
                    if (x < 0 || y < 0 || z < 0 || x >= side || y >= side || z >= side) continue;
                    matrix_column[at] = node_at(x, y, z);
                    matrix_value[at++] = 0.0;
                }
    }
}

/* The entry of a row for a column, which is one of its columns. */
static inline double *entry(int row, int column) {
    int low = matrix_row_start[row], high = matrix_row_start[row + 1] - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (matrix_column[middle] < column)
            low = middle + 1;
        else
            high = middle;
    }
    return &matrix_value[low];
}

/* Adds to each row what the elements around its node contribute. */
static void assemble(void) {
#pragma omp parallel for schedule(static)
    for (int row = 0; row < nodes; row++) {
        int p[3];
        place_of(row, p);
        right_hand_side[row] = 0.0;
        for (int own = 0; own < CORNERS; own++) { /* the corner of the element that this node is */
            int first[3], inside = 1;
            for (int d = 0; d < 3; d++) {
                first[d] = p[d] - corner_bit(own, d);
                inside &= first[d] >= 0 && first[d] < side - 1;
            }
            if (!inside) continue;
            for (int c = 0; c < CORNERS; c++) {
                int column = node_at(first[0] + corner_bit(c, 0), first[1] + corner_bit(c, 1), first[2] + corner_bit(c, 2));
                *entry(row, column) += element_matrix[own][c];
            }
        }
    }
}

/* Rows of nodes on the surface become the identity; in all others the known temperatures go to the right-hand side, so
 * that the matrix stays symmetric. */
static void prescribe_surface(void) {
#pragma omp parallel for schedule(static)
    for (int row = 0; row < nodes; row++) {
        int p[3];
        place_of(row, p);
        int surface = on_surface(p);
        if (surface) right_hand_side[row] = temperature_at(p);
        for (int k = matrix_row_start[row]; k < matrix_row_start[row + 1]; k++) {
            int q[3];
            place_of(matrix_column[k], q);
            if (surface) {
                matrix_value[k] = matrix_column[k] == row ? 1.0 : 0.0;
            } else if (on_surface(q)) {
                right_hand_side[row] -= matrix_value[k] * temperature_at(q);
                matrix_value[k] = 0.0;
            }
        }
    }
}

static double sum_blocks(void) {
    double sum = 0.0;
    for (int b = 0; b < (nodes + BLOCK - 1) / BLOCK; b++) sum += partial_sum[b];
    return sum;
}

static double dot(const double *a, const double *b) {
#pragma omp parallel for schedule(static)
    for (int block = 0; block < (nodes + BLOCK - 1) / BLOCK; block++) {
        int end = (block + 1) * BLOCK < nodes ? (block + 1) * BLOCK : nodes;
        double sum = 0.0;
#pragma omp simd reduction(+ : sum)
        for (int i = block * BLOCK; i < end; i++) sum += a[i] * b[i];
        partial_sum[block] = sum;
    }
    return sum_blocks();
}

/* out = a + factor b; out may be either. */
static void add_scaled(double *out, const double *a, double factor, const double *b) {
#pragma omp parallel for simd schedule(static)
    for (int i = 0; i < nodes; i++) out[i] = a[i] + factor * b[i];
}

/* out = A in. */
static void multiply(double *out, const double *in) {
#pragma omp parallel for schedule(static)
    for (int row = 0; row < nodes; row++) {
        double sum = 0.0;
        for (int k = matrix_row_start[row]; k < matrix_row_start[row + 1]; k++)
            sum += matrix_value[k] * in[matrix_column[k]];
        out[row] = sum;
    }
}

/* The share of the first residual below which only rounding is left to be found. */
#define NOTHING_LEFT 1e-40

/* Solves from a guess of zero. Does the work of all iterations, though the last ones change nothing. Returns the last residual's norm. */
static double conjugate_gradients(int iterations) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < nodes; i++) {
        solution[i] = 0.0;
        residual[i] = direction[i] = right_hand_side[i];
    }
    double rho = dot(residual, residual);
    const double least = rho * NOTHING_LEFT;
    for (int it = 0; it < iterations; it++) {
        multiply(product, direction);
        double length = dot(direction, product), rho_before = rho;
        double alpha = rho > least ? rho / length : 0.0;
        add_scaled(solution, solution, alpha, direction);
        add_scaled(residual, residual, -alpha, product);
        rho = dot(residual, residual);
        add_scaled(direction, residual, rho > least ? rho / rho_before : 0.0, direction);
    }
    return sqrt(rho);
}

static double greatest_error(void) {
    double greatest = 0.0;
#pragma omp parallel for schedule(static) reduction(max : greatest)
    for (int i = 0; i < nodes; i++) {
        int p[3];
        place_of(i, p);
        double off = fabs(solution[i] - temperature_at(p));
        if (!(off <= greatest)) greatest = isnan(off) ? INFINITY : off;
    }
    return greatest;
}

int main(int argc, char **argv) {
    program_options o = program_parse(argc, argv);
    const minife_class *c = classes;
    while (c->name != o.class_) c++;
    int iterations = o.iterations ? o.iterations : c->iterations;

    side = c->side, nodes = side * side * side;
    for (int d = 0; d < 3; d++) spacing[d] = extent[d] / (side - 1);
    double start = program_seconds();
    make_element_matrix();
    make_structure();
    assemble();
    prescribe_surface();
    printf("MiniFE class %c: %d nodes, %d entries, assembled in %.3f s\n", c->name, nodes, matrix_row_start[nodes],
           program_seconds() - start);

    start = program_seconds();
    double norm = conjugate_gradients(iterations);
    double seconds = program_seconds() - start, error = greatest_error();
    printf("Residual: %.6e after %d iterations, greatest error: %.3e\n", norm, iterations, error);
    uint64_t sum = program_checksum(PROGRAM_CHECKSUM_SEED, solution, (size_t)nodes * sizeof *solution);
    free(matrix_value);
    free(matrix_column);
    free(matrix_row_start);
    return program_verdict(sum, seconds, iterations >= c->iterations, error <= TOLERANCE, error, 0.0, iterations,
                           c->iterations);
}
